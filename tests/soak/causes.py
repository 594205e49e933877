"""The recorded faults as possible causes of an event. Each fault is a span of time during which it affected certain
processes, a node or a link.
"""

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from rota.telemetry import log_events
from soak.evidence import Edge, Evidence, Logged, RunEvent, Setup, Strike
from soak.faults import KINDS, Fault, FaultScope
from soak.histories import Run

# The faults in `KILLS` kill the processes that their records list. The faults in `ENDS_NODE` end a whole node.
KILLS = frozenset({Fault.KILL_WORKER, Fault.KILL_SEVERAL, Fault.KILL_WORKERS, Fault.KILL_CHILDREN})
ENDS_NODE = frozenset({Fault.KILL_MASTER, Fault.KILL_NODE, Fault.LOSE_HOST})
LEAVES = frozenset({Fault.TERM_NODE, Fault.UPGRADE, Fault.ROLL_BACK})
# Faults that make workers exit. A worker that does not exit in time is killed, and its tasks are returned without
# counting a crash.
DRAINS = LEAVES | {Fault.RESIZE, Fault.HUP_STORM, Fault.BAD_TOML, Fault.BAD_IMPORT, Fault.SCALE, Fault.RESTART}
# Faults that prevent a node from renewing its leases while other nodes can reap its owners.
SILENCES = frozenset(
    {
        Fault.STOP_MASTER,
        Fault.STOP_NODE,
        Fault.REFUSE,
        Fault.SILENCE,
        Fault.SILENCE_REPLIES,
        Fault.HOLD,
        Fault.PARTITION,
    }
)
# Faults that affect the connection between a node and the server.
ON_THE_WAY = frozenset({Fault.PARTITION, *(fault for fault, kind in KINDS.items() if kind.scope is FaultScope.LINK)})
OUTAGES = frozenset(
    {
        *(Fault.PAUSE_WRITES, Fault.SERVER_SLEEP, Fault.KILL_SERVER, Fault.LONG_OUTAGE, Fault.KILL_CLIENTS),
        *(Fault.MOVE_SLOT, Fault.FAIL_OVER),
    }
)
CONNECTED_SECONDS = 3.0  # all processes are connected again this long after an outage
# How far a recorded time may be from the true time, because the journal is written before and after the event.
MARGIN_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Span:
    """A fault with the times of its beginning and end (CLOCK_BOOTTIME). `end` is infinite if the fault never ended."""

    number: int
    fault: Fault
    target: str
    begin: float
    end: float
    pids: frozenset[int]
    lost_seconds: float

    def overlaps(self, begin: float, end: float, after: float = 0.0) -> bool:
        """Whether the time from `begin` to `end` overlaps with the fault or with the `after` seconds that follow the
        fault.
        """
        return self.begin <= end and begin <= self.end + after

    def __str__(self) -> str:
        return f"fault {self.number}, {self.fault} on {self.target}"


def spans_of(strikes: Iterable[Strike]) -> list[Span]:
    """Return the span of each recorded fault, from the records of its beginning and its end."""
    begins: dict[int, Strike] = {}
    ended: dict[int, Strike] = {}
    for strike in strikes:
        (begins if strike.what is Edge.BEGIN else ended).setdefault(strike.number, strike)
    return [_span(begin, ended.get(number)) for number, begin in begins.items()]


def _span(begin: Strike, end: Strike | None) -> Span:
    pids = frozenset(begin.pids) | frozenset(end.pids if end else ())
    lost = max(begin.lost_seconds, end.lost_seconds if end else 0.0)
    return Span(begin.number, begin.fault, begin.target, begin.boot, end.boot if end else math.inf, pids, lost)


class Causes:
    """The recorded faults. The methods search for a fault that explains an event, and return None if no recorded fault
    explains it.
    """

    def __init__(self, evidence: Evidence) -> None:
        self._setup: Setup = evidence.setup
        self.spans = spans_of(evidence.strikes)
        self._lives = _lives_of(evidence.logged)
        self._suicides = {mark.pid: mark.boot for mark in evidence.ran if mark.what is RunEvent.DIES}
        self._kills = [
            each for each in evidence.logged if each.event in (log_events.WORKER_KILLED, log_events.WORKER_HUNG)
        ]

    def of(self, *faults: Fault) -> Iterator[Span]:
        """Return the faults of these kinds."""
        return (span for span in self.spans if span.fault in faults)

    def node_in_force(self, target: str, boot: float) -> str:
        """Return the name that the node `target` had at this time, or "" if it had not been started yet. A node gets a
        new name at each start.
        """
        lives = self._lives.get(target, [])
        at = bisect_right(lives, (boot, "\uffff"))
        return lives[at - 1][1] if at else ""

    def target_of(self, node: str) -> str:
        """Return the target name that the journal of faults uses for this node, or "" if no node had that name."""
        for target, lives in self._lives.items():
            if any(name == node for _, name in lives):
                return target
        return ""

    # Reasons why a task was started again

    def of_death(self, run: Run, until: float) -> str | None:
        """Return the fault that killed the process of a run before `until`."""
        pid = run.start.pid
        began = run.began
        for span in self.spans:
            if pid not in span.pids or span.begin > until or span.end < began:
                continue
            is_hung = span.fault is Fault.STOP_WORKER and until - span.begin > self._setup.beat_seconds / 2
            if span.fault in KILLS or is_hung:
                return str(span)
        if began <= self._suicides.get(pid, -math.inf) <= until:
            return "another task of its worker killed that"
        return self.of_node_end(run, until) or self._of_kill_in_drain(pid, began, until)

    def of_node_end(self, run: Run, until: float) -> str | None:
        """Return the fault that ended the whole node of a run before `until`."""
        target = self.target_of(run.start.node)
        for span in self.of(*ENDS_NODE):
            is_hit = span.target == target and self.node_in_force(target, span.begin) == run.start.node
            if is_hit and span.begin <= self._latest(run, until) and span.begin + MARGIN_SECONDS >= run.began:
                return str(span)
        return None

    def _of_kill_in_drain(self, pid: int, began: float, until: float) -> str | None:
        for line in self._kills:
            if line.fields.get("child_pid") == pid and began <= line.boot <= until:
                for span in self.of(*DRAINS, Fault.STOP_NODE, Fault.STOP_WORKER):
                    if span.target == line.target and span.begin <= line.boot:
                        return str(span)
        return None

    def of_lost_lease(self, run: Run, until: float) -> str | None:
        """Return the fault because of which the owner of a run lost its lease before `until`."""
        latest = self._latest(run, until)
        for span in self.of(Fault.DELETE_OWNERS):
            if span.begin <= latest and run.began <= span.end + MARGIN_SECONDS:
                return str(span)
        for silence in self.silences(self.target_of(run.start.node), until):
            # A node that resumes just before its lease expires may renew the lease too late. It may start a task before
            # it notices the loss.
            if silence.begin <= latest and run.began <= silence.end + 2 * MARGIN_SECONDS:
                return str(silence)
        return None

    def _latest(self, run: Run, until: float) -> float:
        """Return the time by which a run's outcome was certainly settled. A fault after this time cannot be the reason
        why the task was started again.

        The outcome is settled by the worker's next turn, or by the master if another task of the same claim takes long.
        Either may be delayed while the server cannot be reached, replies are lost, or the master is stopped.
        """
        if run.finished is None:
            return until
        latest = run.finished + MARGIN_SECONDS
        target = self.target_of(run.start.node)
        for span in sorted(self.spans, key=lambda each: each.begin):
            is_of_node = span.fault in ON_THE_WAY or span.fault is Fault.STOP_MASTER
            is_in_the_way = span.fault in OUTAGES or (is_of_node and span.target == target)
            if is_in_the_way and span.overlaps(run.finished, latest):
                latest = max(latest, span.end + CONNECTED_SECONDS)
        return min(until, latest)

    def silences(self, target: str, until: float) -> Iterator[Span]:
        """Yield the periods before `until` in which a node was unable to renew its leases for so long that it may have
        lost them.
        """
        enough = self._setup.lease_seconds - self._setup.renew_seconds - MARGIN_SECONDS
        for silence in self._silences(target):
            if min(silence.end, until) - silence.begin >= enough:
                yield silence

    def away_seconds(self, begin: float, end: float) -> float:
        """Return for how many seconds the server was unavailable between these times. While the server is unavailable,
        no process notices that a lease has been lost.
        """
        return sum(max(0.0, min(span.end, end) - max(span.begin, begin)) for span in self.of(*OUTAGES))

    def _silences(self, target: str) -> Iterator[Span]:
        """Yield the periods in which a node was unable to renew its leases. Periods that follow each other closely are
        joined, together with short outages of the server between them.

        An outage of the server that lasts half a lease or longer does not count, because it is followed by a grace
        period of one lease.
        """
        graced: list[Span] = []
        short: list[Span] = []
        for span in self.of(*OUTAGES):
            (graced if span.end - span.begin >= self._setup.lease_seconds / 2 else short).append(span)
        own = [span for span in self.of(*SILENCES) if span.target == target]
        pieces = [piece for span in (*own, *short) for piece in _outside(span, graced)]
        together: list[Span] = []
        for piece in sorted(pieces, key=lambda each: each.begin):
            if together and not self._follows(piece, together, graced):
                yield from _joined(together, target)
                together = []
            together.append(piece)
        yield from _joined(together, target)

    def _follows(self, piece: Span, together: list[Span], graced: list[Span]) -> bool:
        end = max(each.end for each in together)
        between = any(end <= outage.begin and outage.end <= piece.begin for outage in graced)
        return not between and piece.begin <= end + self._setup.renew_seconds + MARGIN_SECONDS

    def of_lost_writes(self, began: float, until: float, margin: float = MARGIN_SECONDS) -> str | None:
        """Return the fault that killed the server and so may have lost the writes made between `began` and `until`."""
        for span in self.spans:
            if span.lost_seconds and span.begin - span.lost_seconds - margin <= until and began <= span.begin + margin:
                return str(span)
        return None


def _outside(span: Span, others: list[Span]) -> list[Span]:
    """Return the parts of a span that are covered by none of the other spans."""
    pieces = [(span.begin, span.end)]
    for other in others:
        before = [(begin, min(end, other.begin)) for begin, end in pieces]
        after = [(max(begin, other.end), end) for begin, end in pieces]
        pieces = [(begin, end) for begin, end in (*before, *after) if begin < end]
    return [replace(span, begin=begin, end=end) for begin, end in pieces]


def _joined(together: list[Span], target: str) -> Iterator[Span]:
    own = [span for span in together if span.target == target]
    if own:
        first = own[0]
        end = max(span.end for span in together)
        begin = min(span.begin for span in together)
        yield Span(first.number, first.fault, target, begin, end, frozenset(), 0.0)


def _lives_of(logged: Iterable[Logged]) -> dict[str, list[tuple[float, str]]]:
    lives: dict[str, list[tuple[float, str]]] = {}
    for line in logged:
        if line.event == log_events.FLEET_STARTING:
            lives.setdefault(line.target, []).append((line.boot, str(line.fields.get("node", ""))))
    return lives


def is_of_processes(fault: Fault) -> bool:
    """Whether the fault ends at once and affects single processes only."""
    return KINDS[fault].scope is FaultScope.PROCESSES and not KINDS[fault].longest_seconds
