"""Handmade evidence for the tests of the checker. A test starts with a clean history, and then adds the violation that
the checker must find.
"""

from typing import Any, Final

from soak.checker import judge
from soak.evidence import CallEvent, Edge, Evidence, Logged, Quiet, Ran, RunEvent, Sent, Setup, Strike
from soak.faults import Fault
from soak.findings import Wrong

WALL: Final = 1_700_000_000.0  # the Unix time at which CLOCK_BOOTTIME is 0
LEASE_SECONDS: Final = 5.0
NODE_A: Final = "host.aaaa"
NODE_B: Final = "host.bbbb"
OWNER_A: Final = f"{NODE_A}:1:11"
OWNER_B: Final = f"{NODE_B}:1:21"
# The fields of a run in the second worker of node a, and those of a run in the other node.
OTHER: Final[dict[str, Any]] = {"pid": 102, "owner": f"{NODE_A}:2:12"}
FAR: Final[dict[str, Any]] = {"pid": 201, "owner": OWNER_B}
CLEAN: Final = Quiet(
    boot=500.0,
    accepted=0,
    done=0,
    dead=0,
    cancelled=0,
    expired=0,
    missing=0,
    in_lanes=0,
    in_flight=0,
    delayed=0,
    groups=0,
    workers_wanted=4,
    workers_ready=4,
    zombies=0,
    orphans=0,
)


class Plot:
    """A builder of evidence. Times are readings of CLOCK_BOOTTIME. Two nodes with two workers each run from time 0."""

    def __init__(self, **setup: Any) -> None:
        self._setup = setup
        self._sent: list[Sent] = []
        self._ran: list[Ran] = []
        self._strikes: list[Strike] = []
        self._logged: list[Logged] = []
        self._quiet: dict[str, Any] = {}
        self.log(0.0, "a", "fleet.starting", node=NODE_A)
        self.log(0.0, "b", "fleet.starting", node=NODE_B)

    def add(self, what: CallEvent, task_id: str, boot: float, **fields: Any) -> "Plot":
        """Add a record to a producer's journal."""
        self._sent.append(Sent(what, task_id, WALL + boot, boot, **fields))
        return self

    def accept(self, task_id: str, boot: float, **fields: Any) -> "Plot":
        """Add a task that was sent at `boot` and accepted a millisecond later."""
        self.add(CallEvent.INTENDED, task_id, boot, **({"queue": "mail"} | fields))
        return self.add(CallEvent.ACCEPTED, task_id, boot + 0.001)

    def mark(self, what: RunEvent, task_id: str, boot: float, **fields: Any) -> "Plot":
        """Add a record of a task. Its worker is the first worker of node a, unless the fields name another one."""
        given: dict[str, Any] = {
            "queue": "mail",
            "name": "work",
            "attempt": 1,
            "crashes": 0,
            "pid": 101,
            "owner": OWNER_A,
            "due": 0.0,
        }
        self._ran.append(Ran(what, task_id, WALL + boot, boot, **(given | fields)))
        return self

    def run(
        self, task_id: str, begin: float, end: float | None = None, how: RunEvent = RunEvent.END, **fields: Any
    ) -> "Plot":
        """Add a run, with the records of its start and its end. If `end` is None, only the start is recorded."""
        self.mark(RunEvent.START, task_id, begin, **fields)
        return self if end is None else self.mark(how, task_id, end, **fields)

    def strike(self, fault: Fault, target: str, begin: float, end: float | None = None, **fields: Any) -> "Plot":
        """Add a fault. Without an end, the fault ends at once."""
        number = len(self._strikes)
        for edge, boot in ((Edge.BEGIN, begin), (Edge.END, begin + 0.001 if end is None else end)):
            self._strikes.append(Strike(edge, number, fault, target, WALL + boot, boot, **fields))
        return self

    def log(self, boot: float, target: str, event: str, **fields: Any) -> "Plot":
        """Add a line of an event log."""
        self._logged.append(Logged(target, event, WALL + boot, boot, fields))
        return self

    def quiet(self, **fields: Any) -> "Plot":
        """Set values of the quiet window. All other values are as expected."""
        self._quiet |= fields
        return self

    def evidence(self) -> Evidence:
        """Return the evidence so far. The server's totals agree with the evidence unless the test has set them to other
        values.
        """
        accepted = sum(each.what is CallEvent.ACCEPTED for each in self._sent)
        done = len({mark.id for mark in self._ran if mark.what is RunEvent.END})
        fields = {name: getattr(CLEAN, name) for name in CLEAN.__slots__} | {"accepted": accepted, "done": done}
        setup: dict[str, Any] = {
            "seed": 1,
            "profile": "planted",
            "workers": 4,
            "lease_seconds": LEASE_SECONDS,
            "renew_seconds": 1.25,
            "beat_seconds": 3.0,
            "tiers": (("mail", "news"),),
        }
        return Evidence(
            Setup(**(setup | self._setup)),
            sorted(self._sent, key=lambda each: each.boot),
            sorted(self._ran, key=lambda each: each.boot),
            sorted(self._strikes, key=lambda each: each.boot),
            sorted(self._logged, key=lambda each: each.boot),
            Quiet(**(fields | self._quiet)),
        )


def found(plot: Plot) -> list[Wrong]:
    """Run the checker on the evidence, and return the kinds of its findings."""
    return [finding.wrong for finding in judge(plot.evidence()).findings]


def one_run() -> Plot:
    """Return a plot with a task that was sent, accepted and run."""
    return Plot().accept("t", 10.0).run("t", 10.1, 10.2)
