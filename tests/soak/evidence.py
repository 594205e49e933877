"""The evidence of a soak: requests, runs, faults, and logs. The checker uses only these files, not the data in Redis.

A folder holds `setup.json`, `producer-*.jsonl`, `runs.jsonl`, `nemesis.jsonl`, `NODE/fleet.log` (event logs, in JSON)
and `quiet.json`. Each line of a journal is one record, which a single `write` appends to the file. Therefore several
processes can share the file, and the records of a killed process remain.

Records have two times. `at` is Unix time by the wall clock of the machine, which the server uses too. It is compared
with due times. `boot` is CLOCK_BOOTTIME in seconds. The checker uses it for durations and for the order of records.
"""

import dataclasses
import functools
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import rota
from soak.faults import Fault

SETUP_FILE: Final = "setup.json"
QUIET_FILE: Final = "quiet.json"
PRODUCERS: Final = "producer-*.jsonl"
RUNS_FILE: Final = "runs.jsonl"
NEMESIS_FILE: Final = "nemesis.jsonl"
LOGS: Final = "*/fleet.log"
NO_NUMBER: Final = -1
ALWAYS: Final = 1_000_000
_TREE: Final = Path(__file__).resolve().parents[2]


class CallEvent(StrEnum):
    """The kinds of records in a producer's journal. For each task, the producer writes one record before the call, and
    one for the reply.
    """

    INTENDED = "intended"  # written before an enqueue, with everything that the checker needs to know about the task
    ACCEPTED = "accepted"
    REFUSED = "refused"  # an error which guarantees that nothing was changed
    UNKNOWN = "unknown"  # any other error; the task may or may not exist
    HELD = "held"  # another task holds the unique key; `reply` is the id of that task
    DUPLICATE = "duplicate"  # the id belongs to a live task
    CANCEL = "cancel"  # written before a request to cancel
    CANCELLED = "cancelled"  # the task was waiting, and will not start
    CANCELLING = "cancelling"  # the task was running, and will have no further attempt
    NOT_CANCELLED = "not cancelled"  # the task was not live
    CANCEL_UNKNOWN = "cancel unknown"  # the request to cancel got no reply


class RunEvent(StrEnum):
    """The kinds of records in the tasks' journal. A task writes one record at its start, and one just before it
    returns, raises, or kills its own worker.
    """

    START = "start"
    END = "end"
    RAISED = "raised"
    DIES = "dies"


class Edge(StrEnum):
    """The two records of a fault. `BEGIN` is written before the fault begins, and `END` after it has ended. For a kill,
    they are written just before and just after the signal is sent.
    """

    BEGIN = "begin"
    END = "end"


@dataclass(frozen=True, slots=True)
class Sent:
    """A line of a producer's journal."""

    what: CallEvent
    id: str
    at: float
    boot: float
    queue: str = ""
    name: str = ""
    due: float = 0.0  # the Unix time before which the task must not start, or 0 if it is due at once
    unique: str = ""  # the unique key
    retries: int = 10
    fails: int = 0  # the number of attempts that raise an exception, or ALWAYS
    kills: int = 0  # the number of attempts that kill their own worker
    gives_up: bool = False  # whether the first attempt raises an error that makes the task dead
    # The position of the task in the sequence of calls for the queue whose order is checked. A call for this queue
    # waits for the reply to the previous call.
    number: int = NO_NUMBER
    # The ids of the tasks that must end before this task may start. They are the members of a group, or the previous
    # task of a chain, which must also be done.
    follows: str = ""
    # The main part of the reply: the id of the task that holds the key, or the class and text of the error.
    reply: str = ""

    @property
    def before(self) -> tuple[str, ...]:
        """The ids of `follows` as a tuple."""
        return tuple(self.follows.split())


@dataclass(frozen=True, slots=True)
class Ran:
    """A line of the tasks' journal. `attempt`, `crashes` and `due` are copied from `current_task()`. `is_earlier` is
    set if the worker ran an earlier version of Rota.
    """

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
    is_earlier: bool = False

    @property
    def node(self) -> str:
        """The node of the owner, from `node:slot:nonce`."""
        return self.owner.rpartition(":")[0].rpartition(":")[0]


@dataclass(frozen=True, slots=True)
class Strike:
    """A line of the nemesis's journal. The two records of a fault have the same number, kind and target."""

    what: Edge
    number: int
    fault: Fault
    target: str
    at: float
    boot: float
    pids: tuple[int, ...] = ()  # the processes that were killed or stopped; the `END` record lists all of them
    lost_seconds: float = 0.0  # when the server was killed, the writes of this many seconds before may have been lost
    detail: str = ""  # a description for people


@dataclass(frozen=True, slots=True)
class Logged:
    """A line of a node's event log. `boot` is calculated from the wall clock time of the line."""

    target: str
    event: str
    at: float
    boot: float
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Setup:
    """The configuration of a run, as far as the checker needs it."""

    seed: int
    profile: str
    workers: int  # the number of workers on all nodes, not counting separate pools
    lease_seconds: float
    renew_seconds: float
    beat_seconds: float
    tiers: tuple[tuple[str, ...], ...]  # the queues of each tier, in order of priority
    weights: Mapping[str, int] = field(default_factory=dict)  # the weight of each queue whose weight is not 1
    # The queues with a cap, a rate or a separate pool. Their tasks may have to wait although a worker is idle.
    apart: tuple[str, ...] = ()
    order_queue: str = ""  # the queue that a single worker serves, or "" if there is none
    together: str = ""  # the queue whose tasks run concurrently, in one worker of each node, or "" if there is none
    # Queues of one tier with equal weights, whose fairness is checked. Bursts of tasks fill them from time to time.
    # Each of these tasks takes over 5 ms, so that a claim takes only one of them.
    fair: tuple[str, ...] = ()
    crash_limit: int = 3
    loss_limit: int = 5


@dataclass(frozen=True, slots=True)
class Quiet:
    """The state at the end of the quiet window."""

    boot: float
    # The counters up to `missing` are read from `rota audit`.
    accepted: int
    done: int
    dead: int
    cancelled: int
    expired: int
    missing: int
    # The next three values are read with plain Redis commands.
    in_lanes: int
    in_flight: int
    delayed: int
    groups: int  # the number of groups that have not ended, plus the number of tasks that still have a following task
    workers_wanted: int
    workers_ready: int
    zombies: int
    orphans: int
    # The largest growth of any single process between the two readings in the quiet window.
    descriptors_grown: int = 0
    memory_grown_mb: float = 0.0  # resident memory
    dead_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Evidence:
    """All evidence of a soak. Each list is ordered by time."""

    setup: Setup
    sent: list[Sent] = field(default_factory=list)
    ran: list[Ran] = field(default_factory=list)
    strikes: list[Strike] = field(default_factory=list)
    logged: list[Logged] = field(default_factory=list)
    quiet: Quiet | None = None


Record = Sent | Ran | Strike


def now() -> tuple[float, float]:
    """Return the current values of `at` and `boot` for a new record."""
    return time.time(), time.clock_gettime(time.CLOCK_BOOTTIME)


def ran_now(what: RunEvent, task: rota.CurrentTask) -> Ran:
    """Return a record of this kind about the running task."""
    owner = os.environ.get("ROTA_OWNER", "")
    due = task.due_at.timestamp()
    counts = (task.attempt, task.crashes, os.getpid())
    return Ran(what, task.id, *now(), task.queue, task.name, *counts, owner, due, _is_earlier())


@functools.cache
def _is_earlier() -> bool:
    return not Path(rota.__file__).resolve().is_relative_to(_TREE)


# Writing


_LINE_BYTES: Final = (
    # This divides the page size, which matters because the kernel ends the write of a killed process at a page
    # boundary.
    512
)


class Journal:
    """A file to which records are appended. A forked process must open its own journal. Writing a line takes 8 us, of
    which 2 us are the system call.
    """

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def write(self, record: Record) -> None:
        """Append one line in a single write. Raises OSError."""
        os.write(self._fd, line_of(record).ljust(_LINE_BYTES - 1) + b"\n")

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


def line_of(record: Record) -> bytes:
    """Return a record as a line of JSON without a newline. Fields that have their default value are left out."""
    given = {name: value for name in record.__slots__ if (value := getattr(record, name)) or value == 0}
    return json.dumps(given, separators=(",", ":")).encode()


def write_whole(path: Path, whole: Setup | Quiet) -> None:
    """Write the setup or the quiet window's record to its file, `setup.json` or `quiet.json`."""
    path.write_text(json.dumps(dataclasses.asdict(whole), indent=1))
