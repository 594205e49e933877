"""The evidence of a soak, none of it read from Redis: requests, runs, faults, and logs.

A folder holds `setup.json`, `producer-*.jsonl`, `runs.jsonl`, `nemesis.jsonl`, `NODE/fleet.log` (event logs, in
JSON) and `quiet.json`. Each line of a journal is one record, written by one `write` to a file opened for appending:
several processes share it without tearing, and what a process wrote stays when it is killed.

Records have two times: `at`, Unix seconds by the wall clock, which is the server's as well (one machine), for what
is compared with due times; and `boot`, seconds of CLOCK_BOOTTIME, for all durations and for the order of things.
"""

import dataclasses
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from rota.tasks.hooks import CurrentTask
from soak.faults import Fault

SETUP_FILE: Final = "setup.json"
QUIET_FILE: Final = "quiet.json"
PRODUCERS: Final = "producer-*.jsonl"
RUNS_FILE: Final = "runs.jsonl"
NEMESIS_FILE: Final = "nemesis.jsonl"
LOGS: Final = "*/fleet.log"
NO_NUMBER: Final = -1
ALWAYS: Final = 1_000_000


class CallEvent(StrEnum):
    """The records of a producer: `INTENDED` before each call, with all that is known about the task; then one
    reply.

    `REFUSED`: an error that promises that nothing was sent or done. `UNKNOWN`: any other error. `HELD`: another
    task has the unique key, `reply` is its id. `DUPLICATE`: the id is live already. `CANCEL` is written before a
    request to cancel; its reply is `CANCELLED` (it waited, and will not start), `CANCELLING` (it runs; no further
    attempt), `NOT_CANCELLED` (it was not live) or `CANCEL_UNKNOWN`.
    """

    INTENDED = "intended"
    ACCEPTED = "accepted"
    REFUSED = "refused"
    UNKNOWN = "unknown"
    HELD = "held"
    DUPLICATE = "duplicate"
    CANCEL = "cancel"
    CANCELLED = "cancelled"
    CANCELLING = "cancelling"
    NOT_CANCELLED = "not cancelled"
    CANCEL_UNKNOWN = "cancel unknown"


class RunEvent(StrEnum):
    """The records of a task: at its start, and last before it returns, raises, or kills its own worker."""

    START = "start"
    END = "end"
    RAISED = "raised"
    DIES = "dies"


class Edge(StrEnum):
    """The records of a fault: `BEGIN` before it begins, and `END` after it has ended. A kill has both, around the
    call."""

    BEGIN = "begin"
    END = "end"


@dataclass(frozen=True, slots=True)
class Sent:
    """A line of a producer's journal.

    `due`: Unix time before which it may not start; 0 for at once. `unique`: its unique key. `retries`: as enqueued.
    `fails`: how many of its attempts raise, ALWAYS for all; `kills`: how many kill their own worker; `gives_up`:
    its first attempt raises what makes it dead at once. `number`: its place among those of the queue whose order is
    judged; they are sent one after the other, each after the reply to the previous one. `follows`: the ids of those
    that have to end before it may start: several of a group, or the one before it in a chain, which has to be done.
    `reply`: what else the call returned (the holder of the key, the error's class and words).
    """

    what: CallEvent
    id: str
    at: float
    boot: float
    queue: str = ""
    name: str = ""
    due: float = 0.0
    unique: str = ""
    retries: int = 10
    fails: int = 0
    kills: int = 0
    gives_up: bool = False
    number: int = NO_NUMBER
    follows: str = ""
    reply: str = ""

    @property
    def before(self) -> tuple[str, ...]:
        """The ids in `follows`."""
        return tuple(self.follows.split())


@dataclass(frozen=True, slots=True)
class Ran:
    """A line of the tasks' journal. `attempt`, `crashes` and `due` are those of `current_task()`."""

    what: RunEvent
    id: str
    at: float
    boot: float
    queue: str
    name: str
    attempt: int
    crashes: int
    pid: int
    owner: str
    due: float

    @property
    def node(self) -> str:
        """The node of the owner, from `node:slot:nonce`."""
        return self.owner.rpartition(":")[0].rpartition(":")[0]


@dataclass(frozen=True, slots=True)
class Strike:
    """A line of the nemesis's journal. Both edges of a fault have its `number`, fault and target; `pids` are the
    processes that were killed or stopped, known at the latest at its end. `lost_seconds`: how much of what the server
    had accepted before may be gone with it, for a fault that kills it. `detail`: for people.
    """

    what: Edge
    number: int
    fault: Fault
    target: str
    at: float
    boot: float
    pids: tuple[int, ...] = ()
    lost_seconds: float = 0.0
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Logged:
    """A line of a node's event log. `boot` is calculated from its wall clock."""

    target: str
    event: str
    at: float
    boot: float
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Setup:
    """The setup of a run. `workers`: of all nodes together, without those of pools of their own. `tiers`: the queues by
    priority; `weights`: where they are not 1. `apart`: queues with a cap, a rate or a pool of their own, where a
    task may wait although a worker is idle. `order_queue`: served by one worker; "" for none. `together`: whose tasks
    run side by side in workers of their own; "" for none. `fair`: queues of one
    tier and equal weights, filled from time to time, and only with tasks that take over 5 ms, so that a claim is of
    one.
    """

    seed: int
    profile: str
    workers: int
    lease_seconds: float
    renew_seconds: float
    beat_seconds: float
    tiers: tuple[tuple[str, ...], ...]
    weights: Mapping[str, int] = field(default_factory=dict)
    apart: tuple[str, ...] = ()
    order_queue: str = ""
    together: str = ""
    fair: tuple[str, ...] = ()
    crash_limit: int = 3
    loss_limit: int = 5


@dataclass(frozen=True, slots=True)
class Quiet:
    """The state at the end of the quiet window. The counters are those that `rota audit` prints; `in_lanes`,
    `in_flight` and `delayed` those of the commands. `groups` has the groups that have not ended, and the tasks that
    others are to follow. The growth of open descriptors and of resident memory is that of the process that grew most,
    from the first quiet reading to the last."""

    boot: float
    accepted: int
    done: int
    dead: int
    cancelled: int
    expired: int
    missing: int
    in_lanes: int
    in_flight: int
    delayed: int
    groups: int
    workers_wanted: int
    workers_ready: int
    zombies: int
    orphans: int
    descriptors_grown: int = 0
    memory_grown_mb: float = 0.0
    dead_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Evidence:
    """The whole evidence. Each list is in the order of time."""

    setup: Setup
    sent: list[Sent] = field(default_factory=list)
    ran: list[Ran] = field(default_factory=list)
    strikes: list[Strike] = field(default_factory=list)
    logged: list[Logged] = field(default_factory=list)
    quiet: Quiet | None = None


Record = Sent | Ran | Strike


def now() -> tuple[float, float]:
    """Return `at` and `boot` of a record that is made now."""
    return time.time(), time.clock_gettime(time.CLOCK_BOOTTIME)


def ran_now(what: RunEvent, task: CurrentTask) -> Ran:
    """Return the record of the running task."""
    owner = os.environ.get("ROTA_OWNER", "")
    due = task.due_at.timestamp()
    return Ran(what, task.id, *now(), task.queue, task.name, task.attempt, task.crashes, os.getpid(), owner, due)


# Writing


_LINE_BYTES: Final = (
    512  # a whole part of a page: at the edge of one the kernel ends the write of a process that is killed
)


class Journal:
    """A file to which records are appended. In a forked process, make a new one. A line takes 8 us, of which the write
    is 2."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def write(self, record: Record) -> None:
        """Append one line, in one write. Raises OSError."""
        os.write(self._fd, line_of(record).ljust(_LINE_BYTES - 1) + b"\n")

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


def line_of(record: Record) -> bytes:
    """Return a record as its line, without the end of line. Values equal to their default are omitted."""
    given = {name: value for name in record.__slots__ if (value := getattr(record, name)) or value == 0}
    return json.dumps(given, separators=(",", ":")).encode()


def write_whole(path: Path, whole: Setup | Quiet) -> None:
    """Write `setup.json` or `quiet.json`."""
    path.write_text(json.dumps(dataclasses.asdict(whole), indent=1))
