"""What is known of code while it is loaded, and of the candidate that it is loaded for."""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from rota_supervisor.layout import Role
from rota_supervisor.master.children.child import PoolKey
from rota_supervisor.master.planning.backoff import Backoff, Standing
from rota_supervisor.master.reload.rollout import Generation
from rota_supervisor.master.reload.verdicts import Askers

CANDIDATE_TRIES: Final = 2  # the old generation works: whoever reloads wants to know soon, and can ask again


@dataclass(slots=True)
class Code:
    """One loading of the task modules: the `tasks` they define with their queues, and the module being imported."""

    tasks: dict[str, str] = field(default_factory=dict)
    importing: str = ""
    is_loaded: bool = False


class Codes:
    """Each code that a generation forks from, by the generation that brought it."""

    def __init__(self, generations: Iterable[Generation]) -> None:
        self._wanted: dict[int, Code] = {}
        self.keep(generations)

    def keep(self, generations: Iterable[Generation]) -> None:
        """Only these are wanted from now on."""
        self._wanted = {each.code: self.of(each.code) for each in generations}

    def of(self, number: int) -> Code:
        """The code of a zygote of that generation. What is noted of one that nobody wants is lost."""
        return self._wanted.get(number) or Code()


@dataclass(slots=True)
class Loading:
    """What a candidate changes, and who waits to hear of it."""

    changes: list[str]
    askers: Askers = field(default_factory=list)

    @property
    def asked_for(self) -> bool:
        """Whether it is a reload: the first generation is none, unless something was changed while it loaded."""
        return bool(self.changes or self.askers)


def failed_pool(new: Container[int], backoffs: Mapping[PoolKey, Backoff], *, is_first: bool) -> PoolKey | None:
    """The pool for which a candidate is given up, which brought these new generations.

    The first generation is tried for longer, and goes on when some of its workers work: there is nothing to go back to.
    """
    own = [key for key in backoffs if key.role in (Role.ZYGOTE, Role.WORKER) and key.generation in new]
    if is_first and any(backoffs[key].ever_ready for key in own if key.role is Role.WORKER):
        return None
    has_failed = _first_has_failed if is_first else _candidate_has_failed
    return next((key for key in own if has_failed(key, backoffs[key])), None)


def _first_has_failed(_key: PoolKey, backoff: Backoff) -> bool:
    return backoff.gave_up


def _candidate_has_failed(key: PoolKey, backoff: Backoff) -> bool:
    # One that began well and then cannot go on would neither take over nor leave: its budget is its deadline.
    never_worked = backoff.failures >= CANDIDATE_TRIES and not backoff.ever_ready
    return never_worked or backoff.standing(key.role) is Standing.FATAL
