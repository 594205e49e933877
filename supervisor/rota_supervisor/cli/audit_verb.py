"""`rota audit`: check that every accepted task is accounted for, and that every live one is where a worker can find
it."""

import dataclasses
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

import click

from rota.protocol.keys import Keys, fault_of_lane
from rota.protocol.replies import RestoreStatus
from rota.protocol.scans import find_unplaced
from rota.protocol.store import BATCH, Store
from rota.protocol.wire import shown, text_of
from rota.server.connection import Connection
from rota.server.server_errors import Refused
from rota_supervisor.cli import command, output
from rota_supervisor.config.model import Config
from rota_supervisor.exits import ExitCode, Failure

NAMED_IDS: Final = 20
SCAN_COUNT: Final = 1000
_FIRST_CURSOR: Final = "0"
_LAST_CURSOR: Final = "0"
_LAST_SCAN: Final = b"0"


@dataclass(frozen=True, slots=True)
class StrayKey:
    """A list that looks like a queue of the fleet but is not one, so that no worker takes its items."""

    key: str
    items: int | None  # None if the ACL forbids `LLEN` on the key
    fault: str


@click.command(cls=command.RotaCommand)
@click.option(
    "--heal",
    is_flag=True,
    help="First put back live tasks that no worker can find, and recount all queues and groups.",
)
def audit(*, heal: bool) -> None:
    """Check that every accepted task is accounted for and can be found. Exit with 1 if not.

    The number of accepted tasks must equal that of ended and live tasks together, and every live task must be in one of
    these places: in a lane, in the delayed set, claimed by a worker, or among the dead tasks. Warnings name lists that
    look like queues of this fleet but are not: items pushed there were never accepted, and no worker takes them.
    """
    state = command.current_state()
    with state.redis() as (config, store, connection):
        if heal:
            _put_back(store, connection, _unplaced(store, connection))
            _recount(store, connection)
            _end_members(store, connection)
        counters = connection.run(store.audit())
        unplaced = list(map(shown, _unplaced(store, connection)))
        strays = find_strays(config, connection)
    figures = {"accepted": counters.accepted, **counters.ended, "live": counters.live, "missing": counters.missing}
    rows = [*figures.items(), ("unplaced", len(unplaced)), ("strays", _items_of(strays))]
    warn_of_strays(strays)
    facts = {**figures, "unplaced": unplaced, "strays": list(map(dataclasses.asdict, strays))}
    state.table(facts, ("TASKS", "COUNT"), rows)
    faults = [f"the counters are off by {output.counted(abs(counters.missing), 'task')}"] if counters.missing else []
    if unplaced:
        faults.append(_where_to(unplaced))
    if faults:
        raise Failure(ExitCode.NO, *faults)


def _unplaced(store: Store, connection: Connection) -> list[str]:
    """Return the ids of live tasks that are in no lane or set. Each step is one call, so that the server can serve
    other clients in between."""
    scan = find_unplaced(store, lambda _: set())
    reply: Any = None
    while True:
        try:
            call = scan.send(reply)
        except StopIteration as over:
            return list(map(text_of, over.value))
        reply = connection.run(call)


def _put_back(store: Store, connection: Connection, ids: Sequence[str]) -> None:
    counts: Counter[RestoreStatus] = Counter()
    for start in range(0, len(ids), BATCH):
        reply = connection.run(store.restore(ids[start : start + BATCH]))
        counts.update(reply)
    texts = {
        RestoreStatus.RESTORED: "put back {}, at the end of the lane",
        RestoreStatus.ENDED: "ended {} that had been cancelled",
        RestoreStatus.DEAD: "set {} aside as dead, because its queue is not known: see `rota dead ls`",
    }
    for status, sentence in texts.items():
        if counts[status]:
            output.print_message(sentence.format(output.counted(counts[status], "task")))


def _recount(store: Store, connection: Connection) -> None:
    steps = 1
    cursor = connection.run(store.heal(_FIRST_CURSOR))
    while cursor != _LAST_CURSOR:
        steps = steps + 1
        cursor = connection.run(store.heal(cursor))
    output.print_message(f"recounted in {output.counted(steps, 'step')}")


def _end_members(store: Store, connection: Connection) -> None:
    ended = 0
    cursor = ""
    while cursor != _LAST_CURSOR:
        cursor, found = connection.run(store.heal_members(cursor))
        ended += found
    if ended:
        output.print_message(f"removed {output.counted(ended, 'member')} that had ended from groups and chains")


def _where_to(unplaced: Sequence[str]) -> str:
    named = ", ".join(unplaced[:NAMED_IDS]) + (", ..." if len(unplaced) > NAMED_IDS else "")
    tasks = output.counted(len(unplaced), "live task")
    return f"{tasks} in no lane or set, which no worker will run: {named}; `rota audit --heal` repairs this"


def _items_of(strays: Sequence[StrayKey]) -> int | str:
    counts = [stray.items for stray in strays if stray.items is not None]
    return sum(counts) if len(counts) == len(strays) else "unknown"


# Keys that look like queues


def find_strays(config: Config, connection: Connection, most_scans: float = math.inf) -> list[StrayKey]:
    """Return the lists whose keys look like lanes of this namespace but are not.

    The client finds them by SCAN, as no script scans keys. It stops after `most_scans` calls of SCAN_COUNT keys. Raises
    ServerError.
    """
    found: dict[str, StrayKey] = {}
    cursor = b""
    scans = 0
    while cursor != _LAST_SCAN and scans < most_scans:
        options = "MATCH", f"*{config.namespace}*queue*", "COUNT", SCAN_COUNT, "TYPE", "list"
        cursor, keys = connection.execute("SCAN", cursor or _LAST_SCAN, *options)
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
    except Refused:  # An ACL may permit only the keys of the namespace.
        return None


def warn_of_strays(strays: Iterable[StrayKey]) -> None:
    """Warn of each list: how many items it holds, and how it can be made a queue."""
    for stray in strays:
        waiting = "an unknown number of items" if stray.items is None else output.counted(stray.items, "item")
        output.print_warning(
            f'no worker takes {waiting} from the list "{stray.key}": {stray.fault}; nothing there is lost: rename it '
            "(RENAMENX) to the key of a queue"
        )
