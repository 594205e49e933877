"""What a fleet's configuration would say of the tasks that tests run: the defaults, and no limit of a body."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from rota.child.child_settings import TaskOverride
from rota.tasks.fleet_settings import DEFAULT_TIME_LIMIT_SECONDS


@dataclass(frozen=True, slots=True)
class DefaultTerms:
    """As `rota.worker.preparation.TaskTerms`."""

    max_payload_kb: int = 0
    time_limit_seconds: float = DEFAULT_TIME_LIMIT_SECONDS
    overrides: Mapping[str, TaskOverride] = field(default_factory=dict)


IN_TESTS: Final = DefaultTerms()
