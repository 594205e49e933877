"""What is said of a queue that nobody knows, and of keys that look like queues: a name is misspelt more often than a
queue is new."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from rota.protocol.command import follow
from rota.protocol.keys import Keys, fault_of_lane
from rota.protocol.names import is_pattern, served_as
from rota.protocol.store import Store
from rota.protocol.views import QueueState
from rota.protocol.walks import look_further
from rota.protocol.wire import shown, text_of
from rota.server.connection import Connection
from rota.server.server_errors import Refused
from rota_supervisor.cli import output
from rota_supervisor.config.faults import suggestion
from rota_supervisor.config.model import Config
from rota_supervisor.config.rules import served_queues

SCAN_COUNT: Final = 1000
_LAST_CURSOR: Final = b"0"
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
    overview = follow(connection.run, look_further(store, connection.run(store.overview(()))))
    return (each.queue for each in overview.queues if _is_known(each))


def _is_known(state: QueueState | None) -> bool:
    return state is not None and any(getattr(state, trace) for trace in _TRACES)


# Keys that look like queues


@dataclass(frozen=True, slots=True)
class StrayKey:
    """A list that was meant as a queue of the fleet and is none, so that nobody takes what was pushed to it. `items` is
    None if the ACL forbids `LLEN` on its key."""

    key: str
    items: int | None
    fault: str


def find_strays(config: Config, connection: Connection, most_scans: float = math.inf) -> list[StrayKey]:
    """Return the lists whose keys look like lanes of this namespace and are not.

    A client looks for them by SCAN, as no script scans keys; after `most_scans` calls of SCAN_COUNT keys it has
    looked at enough. Raises ServerError.
    """
    found: dict[str, StrayKey] = {}
    cursor, scans = b"", 0
    while cursor != _LAST_CURSOR and scans < most_scans:
        options = "MATCH", f"*{config.namespace}*queue*", "COUNT", SCAN_COUNT, "TYPE", "list"
        cursor, keys = connection.execute("SCAN", cursor or _LAST_CURSOR, *options)
        scans += 1
        for raw in keys:
            key = text_of(raw)
            fault = "" if key in config.adopt else fault_of_lane(Keys(config.namespace), key)
            if fault:
                found[key] = StrayKey(shown(key), _length(connection, raw), fault)
    return sorted(found.values(), key=attrgetter("key"))


def _length(connection: Connection, key: bytes) -> int | None:
    try:
        return int(connection.execute("LLEN", key))
    except Refused:  # an ACL may allow only the keys of the namespace
        return None


def warn_of_strays(strays: Iterable[StrayKey]) -> None:
    """Say of each what waits there, and how it becomes a queue."""
    for stray in strays:
        waiting = "an unknown number of items" if stray.items is None else output.counted(stray.items, "item")
        output.say_warning(
            f'nobody takes {waiting} from the list "{stray.key}": {stray.fault}; nothing there is lost: rename it '
            "(RENAMENX) to the key of a queue"
        )
