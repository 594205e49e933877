"""Checks of the fleet's counters, of process deaths and lost leases, and of anything left over at the end."""

from collections.abc import Iterator

from rota.telemetry import log_events
from soak.case import Case
from soak.causes import DRAINS, ENDS_NODE, KILLS, LEAVES, MARGIN_SECONDS, ON_THE_WAY, Span
from soak.evidence import Logged, Quiet, RunEvent
from soak.fates import is_dead_by_right, is_dropped
from soak.faults import KINDS, Fault, FaultScope
from soak.findings import Finding, Wrong

MOST_DESCRIPTORS = 4
MOST_MEMORY_MB = 12.0
_UNEXPLAINED = frozenset({"signal", "crash", "oom", "timeout", "hung"})
_HELPERS = frozenset(
    {Fault.KILL_ZYGOTE, Fault.KILL_POLLER, Fault.KILL_EXPORTER, Fault.KILL_CHILDREN, Fault.STOP_POLLER}
)
_DISTURBS_START = ON_THE_WAY | {Fault.LOSE_HOST, Fault.BAD_TOML, Fault.BAD_IMPORT}
_STOPS = frozenset({Fault.STOP_WORKER, Fault.STOP_NODE, Fault.STOP_POLLER})


def deaths_without_cause(case: Case) -> Iterator[Finding]:
    """Yield the deaths of children that neither a fault nor a task nor a drain explains, and the masters that gave up
    without a recorded cause.
    """
    suicides = {mark.pid for mark in case.evidence.ran if mark.what is RunEvent.DIES}
    for line in case.logged(*log_events.DEATHS):
        if str(line.fields.get("reason")) not in _UNEXPLAINED or int(line.fields.get("child_pid", 0)) in suicides:
            continue
        if not any(_may_have_killed(span, line) for span in case.causes.spans):
            who = f"{line.event} of pid {line.fields.get('child_pid')} on {line.target}"
            yield Finding(Wrong.DIED, f"{who} ({line.fields.get('text')}): no cause is on record", boot=line.boot)
    for line in case.logged(log_events.FLEET_FAILED):
        if not any(_may_have_kept_away(span, line) for span in case.causes.spans):
            text = f"the master of {line.target} gave up: {line.fields.get('error')}"
            yield Finding(Wrong.DIED, text, boot=line.boot)


def _may_have_kept_away(span: Span, line: Logged) -> bool:
    """Whether a fault may have prevented a starting master from reaching the server. In that case the master exits, and
    the keeper starts it again.
    """
    scope = KINDS[span.fault].scope
    is_own = span.target == line.target and span.fault in _DISTURBS_START
    return (is_own or scope in (FaultScope.SERVER, FaultScope.CLUSTER)) and span.overlaps(line.boot, line.boot, 10.0)


def _may_have_killed(span: Span, line: Logged) -> bool:
    if span.begin > line.boot:
        return False
    if int(line.fields.get("child_pid", 0)) in span.pids and span.fault in KILLS | ENDS_NODE | _HELPERS | _STOPS:
        return True
    # The master may kill a process that was stopped together with the whole node, or that exits too late during a drain
    # of the node.
    is_of_all = span.fault in DRAINS | _STOPS - {Fault.STOP_WORKER} or KINDS[span.fault].scope is FaultScope.NODE
    return is_of_all and span.target == line.target and line.boot <= span.end + 10.0


def leases_without_cause(case: Case) -> Iterator[Finding]:
    """Yield a finding for each lease that was lost although no recorded fault prevented the master from renewing it."""
    for line in case.logged(log_events.WORKER_LOST, log_events.TASK_RECOVERED, log_events.TASK_DEAD):
        owner = str(line.fields.get("owner", ""))
        is_by_lease = line.event == log_events.WORKER_LOST or line.fields.get("role") == "poller"
        if owner and is_by_lease and not _may_have_lost(case, owner, line.boot):
            text = f"{line.event} of {owner}, told on {line.target}: nothing on record can have cost it its lease"
            yield Finding(Wrong.LEASE, text, str(line.fields.get("task_id", "")), line.boot)


def _may_have_lost(case: Case, owner: str, boot: float) -> bool:
    """Whether a recorded fault may have cost an owner its lease. This is possible if the owner's node had ended or was
    unable to renew the lease for long enough, or if the server forgot the owner.
    """
    causes = case.causes
    node = owner.rpartition(":")[0].rpartition(":")[0]
    lease = case.evidence.setup.lease_seconds
    target = causes.target_of(node)
    forgotten = [span for span in causes.spans if span.fault is Fault.DELETE_OWNERS or span.lost_seconds]
    if causes.node_in_force(target, boot) != node or any(span.overlaps(boot, boot, 3 * lease) for span in forgotten):
        return True
    ends = [span for span in causes.of(*ENDS_NODE, *LEAVES) if span.target == target and span.begin <= boot]
    if any(causes.node_in_force(target, span.begin) == node for span in ends):
        return True
    return any(
        silence.overlaps(
            boot - MARGIN_SECONDS, boot + MARGIN_SECONDS, 2 * lease + causes.away_seconds(silence.end, boot)
        )
        for silence in causes.silences(target, boot)
    )


def counters_off(case: Case) -> Iterator[Finding]:
    """Compare the server's totals with the evidence. If the server was killed and may have lost writes, check only that
    the audit finds no missing task.
    """
    quiet = case.evidence.quiet
    if quiet is None:
        yield Finding(Wrong.LEFT, "the quiet window was not reached")
        return
    if quiet.missing:
        yield Finding(Wrong.COUNTERS, f"the audit misses {quiet.missing} tasks", boot=quiet.boot)
    if any(span.lost_seconds for span in case.causes.spans):
        return
    histories = case.histories.values()
    sure = sum(history.accepted is not None and not is_dropped(case, history) for history in histories)
    most = sum(history.may_exist for history in histories)
    if not sure <= quiet.accepted <= most:
        text = f"accepted: {quiet.accepted} by the server, {sure} to {most} by the producers"
        yield Finding(Wrong.COUNTERS, text, boot=quiet.boot)
    done = [history for history in histories if history.ends]
    doubtful = sum(len(history.runs) > 1 or bool(history.cancels) for history in done)
    if not len(done) - doubtful <= quiet.done <= len(done):
        text = f"done: {quiet.done} by the server, {len(done) - doubtful} to {len(done)} by the tasks"
        yield Finding(Wrong.COUNTERS, text, boot=quiet.boot)


def left_over(case: Case) -> Iterator[Finding]:
    """Yield a finding for everything that is left over at the end of the quiet window, such as tasks or orphans, and
    for everything that is missing, such as ready workers.
    """
    quiet = case.evidence.quiet
    if quiet is None:
        return
    for text in _left(quiet):
        yield Finding(Wrong.LEFT, text, boot=quiet.boot)
    for task_id in quiet.dead_ids:
        history = case.histories.get(task_id)
        if history is None or not is_dead_by_right(case, history):
            reason = case.deaths.get(task_id, "no reason logged")
            yield Finding(Wrong.LOST, f"it lies among the dead without reason: {reason}", task_id, quiet.boot)


def _left(quiet: Quiet) -> Iterator[str]:
    for name in ("in_lanes", "in_flight", "delayed", "groups", "zombies", "orphans"):
        if getattr(quiet, name):
            yield f"{name}: {getattr(quiet, name)} at the end"
    if quiet.workers_ready != quiet.workers_wanted:
        yield f"{quiet.workers_ready} workers are ready at the end, {quiet.workers_wanted} are wanted"
    if quiet.descriptors_grown > MOST_DESCRIPTORS:
        yield f"a process has {quiet.descriptors_grown} descriptors more at the end"
    if quiet.memory_grown_mb > MOST_MEMORY_MB:
        yield f"a process has {quiet.memory_grown_mb:.1f} MB more at the end"
