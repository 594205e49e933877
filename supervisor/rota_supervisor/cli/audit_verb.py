"""`rota audit`: check that every accepted task is accounted for, and that workers can find every live task."""

import dataclasses
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

import click

from rota.durations import MICROSECONDS, utc_datetime
from rota.protocol.keys import Keys, fault_of_lane
from rota.protocol.replies import RestoreStatus
from rota.protocol.scans import find_unplaced
from rota.protocol.store import BATCH, Store
from rota.protocol.wire import shown, text_of
from rota.server.connection import Connection
from rota.server.server_errors import Refused
from rota_supervisor.backup.comparison import Comparison, EndedTask, Evidence, StaleFile, compare, read_file
from rota_supervisor.backup.file_check import FileFault
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
    """A list that looks like a queue of the fleet but is not one, so no worker takes its items."""

    key: str
    items: int | None  # the number of items, or None if the ACL forbids `LLEN` on the key
    fault: str


@click.command(cls=command.RotaCommand)
@click.option(
    "--heal",
    is_flag=True,
    help="First put live tasks that no worker can find back into their queues, and recount all queues and groups.",
)
@click.option(
    "--against",
    "files",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="After a restore, compare the server with a newer export, stored task events, or a JSON log. May be repeated.",
)
def audit(*, heal: bool, files: tuple[Path, ...]) -> None:
    """Check that every accepted task is accounted for and can be found. Exit with 1 if not.

    The number of accepted tasks must equal the number of ended and live tasks together, and every live task must be in
    a lane, in the delayed set, claimed by a worker, or among the dead tasks. Warnings name lists that look like queues
    of this fleet but are not. Items that were pushed there were never accepted, and no worker takes them.

    With --against, report the tasks that are in the files but not on the server, and the tasks that wait on the server
    although they have ended. Use this option after the server was restored from a snapshot, before a fleet starts.
    """
    state = command.current_state()
    evidence = _evidence_of(files)
    with state.redis() as (config, store, connection):
        if heal:
            _put_back(store, connection, _unplaced(store, connection))
            _recount(store, connection)
            _end_members(store, connection)
        counters = connection.run(store.audit())
        unplaced = list(map(shown, _unplaced(store, connection)))
        strays = find_strays(config, connection)
        found = _compared(connection, config.namespace, evidence) if files else None
    figures = {"accepted": counters.accepted, **counters.ended, "live": counters.live, "missing": counters.missing}
    rows = [*figures.items(), ("unplaced", len(unplaced)), ("strays", _items_of(strays))]
    warn_of_strays(strays)
    facts = {**figures, "unplaced": unplaced, "strays": list(map(dataclasses.asdict, strays))}
    if found is not None:
        rows += [("lost", len(found.missing)), ("ran already", len(found.ended))]
        facts |= {"lost": found.missing, "ran_already": list(map(_ended_values, found.ended))}
    state.table(facts, ("TASKS", "COUNT"), rows)
    faults = [f"the counters are off by {output.counted(abs(counters.missing), 'task')}"] if counters.missing else []
    if unplaced:
        faults.append(_where_to(unplaced))
    if found is not None:
        faults += _faults_of_restore(found)
    if faults:
        raise Failure(ExitCode.NO, *faults)


# The comparison with files


def _evidence_of(files: Iterable[Path]) -> Evidence:
    """Read the files of --against, and return what they record about each task. Raises Failure with code 1 if a file
    cannot be used.
    """
    evidence = Evidence()
    for file in files:
        try:
            with file.open("rb") as opened:
                read_file(opened, evidence)
        except FileFault as fault:
            raise Failure(ExitCode.NO, *(f"{file}: {each}" for each in fault.faults)) from None
    return evidence


def _compared(connection: Connection, namespace: str, evidence: Evidence) -> Comparison:
    with command.failing({StaleFile: ExitCode.NO}):
        return compare(connection, namespace, evidence)


def _ended_values(task: EndedTask) -> dict[str, Any]:
    at = None if task.at is None else utc_datetime(round(task.at * MICROSECONDS)).isoformat(timespec="milliseconds")
    return {"id": task.id, "how": task.how, "at": at}


def _faults_of_restore(found: Comparison) -> list[str]:
    faults = []
    if found.missing:
        tasks = output.counted(len(found.missing), "task")
        faults.append(
            f"the server has lost {tasks}: {_some_of(found.missing)}; enqueue again those that are still needed"
        )
    if found.ended:
        tasks = output.counted(len(found.ended), "waiting task")
        ids = _some_of([task.id for task in found.ended])
        faults.append(
            f"{tasks} had ended already: {ids}; before the fleet starts, cancel those that must not run again "
            "(`rota task cancel`)"
        )
    return faults


def _some_of(ids: Sequence[str]) -> str:
    return ", ".join(ids[:NAMED_IDS]) + (", ..." if len(ids) > NAMED_IDS else "")


# Tasks that no worker can find


def _unplaced(store: Store, connection: Connection) -> list[str]:
    """Return the ids of live tasks that are in no lane or set. The search consists of many calls, so that the server
    can serve other clients in between.
    """
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
        RestoreStatus.RESTORED: "put {} back, at the end of the lane",
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
    tasks = output.counted(len(unplaced), "live task")
    return (
        f"{tasks} in no lane or set, so no worker will run them: {_some_of(unplaced)}; `rota audit --heal` repairs this"
    )


def _items_of(strays: Sequence[StrayKey]) -> int | str:
    counts = [stray.items for stray in strays if stray.items is not None]
    return sum(counts) if len(counts) == len(strays) else "unknown"


# Keys that look like queues


def find_strays(config: Config, connection: Connection, most_scans: float = math.inf) -> list[StrayKey]:
    """Return the lists whose keys look like lanes of this namespace but are not.

    The lists are found with SCAN from the client, because scripts do not scan keys. The search stops after `most_scans`
    calls, each for SCAN_COUNT keys. Raises ServerError.
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
    except Refused:  # This user may be permitted only the namespace's keys.
        return None


def warn_of_strays(strays: Iterable[StrayKey]) -> None:
    """Warn of each list. The warning contains the number of items and how to turn the list into a queue."""
    for stray in strays:
        waiting = "an unknown number of items" if stray.items is None else output.counted(stray.items, "item")
        output.print_warning(
            f'no worker takes {waiting} from the list "{stray.key}": {stray.fault}; nothing in the list is lost: '
            "rename it "
            "(RENAMENX) to the key of a queue"
        )
