"""What is said of a queue that nobody knows: a name is misspelt more often than a queue is new."""

from collections.abc import Iterable, Iterator

from rota.protocol.patterns import is_pattern, served_as
from rota.protocol.queue_walk import look_further
from rota.protocol.store import Store
from rota.protocol.views import QueueState
from rota.server.connection import Connection
from rota_supervisor.cli import output
from rota_supervisor.config.faults import suggestion
from rota_supervisor.config.model import Config
from rota_supervisor.config.rules import served_queues

_TRACES = ("served", "accepted", "ready", "scheduled", "inflight", "dead")


def warn_of_unknown(names: Iterable[str], config: Config, store: Store, connection: Connection) -> None:
    """Say which of these queues no tier of the configuration has, no fleet serves, and no task was ever put into."""
    tiers = served_queues(config)
    unsure = [name for name in names if not is_pattern(name) and served_as(name, tiers) is None]
    if not unsure:
        return
    seen = {each.queue: each for each in connection.run(store.overview(tuple(unsure))).queues}
    unknown = [name for name in unsure if not _is_known(seen.get(name))]
    known = [*tiers, *_known_ones(store, connection)] if unknown else []
    for name in unknown:
        near = suggestion(name, (each for each in known if each != name and not is_pattern(each))) or ":"
        output.say_warning(f'nobody knows a queue "{name}"{near} no tier has it, and no task was ever put into it')


def _known_ones(store: Store, connection: Connection) -> Iterator[str]:
    overview = look_further(connection.run, store, connection.run(store.overview(())))
    return (each.queue for each in overview.queues if _is_known(each))


def _is_known(state: QueueState | None) -> bool:
    return state is not None and any(getattr(state, trace) for trace in _TRACES)
