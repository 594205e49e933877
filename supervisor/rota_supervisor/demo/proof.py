"""The checks at the end of the demo. The producer's journal and the tasks' journal must agree, and the fleet's counts
must agree with both journals."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

FOLDER_VARIABLE: Final = "DEMO_FOLDER"  # the environment variable that contains the folder of the journals
RUNS_FILE: Final = "runs.jsonl"
RUN_EVENTS: Final = ("start", "done", "failed")
_NAMED: Final = 3  # an error names at most this many tasks; the journals contain all of them


class Accepted(NamedTuple):
    """A task that the server has accepted. The task must not start before `not_before`, in Unix time."""

    task: str
    not_before: float


class Run(NamedTuple):
    """A line of the tasks' journal, about one attempt. `what` is one of `RUN_EVENTS`. `at` and `due_at` are Unix
    times."""

    what: str
    task_id: str
    task: str
    pid: int
    at: float
    due_at: float


class Check(NamedTuple):
    """A condition that must hold at the end of the demo, whether it holds, and the observed values in a text for
    people."""

    name: str
    ok: bool
    seen: str


def prove(
    accepted: Mapping[str, Accepted], runs: Sequence[Run], killed: Collection[str], status: Mapping[str, Any]
) -> list[Check]:
    """Compare both journals with each other and with `status`, the contents of `/status.json`. `killed`: the ids of the
    tasks that were running when their worker was killed."""
    first = {run.task_id: run for run in reversed(runs) if run.what == "start"}
    starts, done, failed = (
        Counter(run.task_id for run in runs if run.what == of) for of in ("start", "done", "failed")
    )
    ends = done + failed + Counter(killed)  # A killed worker does not record the end of its attempt.
    lost = accepted.keys() - done.keys()
    repeated = {task_id for task_id in starts if done[task_id] > 1 or starts[task_id] != ends[task_id]}
    promised = {task_id: each.not_before for task_id, each in accepted.items()}
    early = {run.task_id for run in runs if run.at < max(run.due_at, promised.get(run.task_id, 0))}
    unknown = first.keys() - accepted.keys()

    def named(wrong: Collection[str]) -> str:
        shown = [f"{(first.get(task_id) or accepted[task_id]).task} {task_id}" for task_id in sorted(wrong)[:_NAMED]]
        return ", ".join([*shown, *["..."] * (len(wrong) > _NAMED)])

    again = f"{len(killed)} of the killed worker ran again; {failed.total()} failed attempts were retried"
    return [
        Check(
            "every task ran",
            bool(accepted) and not lost,
            f"{len(lost)} of {len(accepted):,} never done: {named(lost)}"
            if lost
            else f"{len(accepted):,} accepted, all done, none lost",
        ),
        Check("none ran twice", not repeated, f"more often than intended: {named(repeated)}" if repeated else again),
        Check("none started early", not early, f"before they were due: {named(early) or 'none'}"),
        Check("none unknown", not unknown, f"runs of tasks that were not sent: {named(unknown) or 'none'}"),
        *_counted(len(accepted), done.total(), len(killed), status),
    ]


def _counted(accepted: int, done: int, killed: int, status: Mapping[str, Any]) -> list[Check]:
    """Compare the fleet's own counts with the journals."""
    taken, ended = totals(status)
    early = status["early_starts"]
    missing = status["missing_tasks"]
    recovered = status["recovered"]
    deaths = sum(row["count"] for row in status["restarts"] if (row["role"], row["reason"]) == ("worker", "signal"))
    counts = f"the fleet: {taken:,} enqueued, {ended:,} done; journals: {accepted:,} and {done:,}"
    kill = f"{killed} worker killed, {deaths} restarted for it, {recovered} task recovered"
    return [
        Check("audit", (early, missing) == (0, 0), f"{missing} missing in Redis, {early} counted as early"),
        Check("the counts agree", (taken, ended) == (accepted, done), counts),
        Check("kill noticed", killed == deaths == recovered, kill),
    ]


def totals(status: Mapping[str, Any]) -> tuple[int, int]:
    """Return how many tasks Redis has accepted and how many attempts have succeeded, according to the fleet's
    counts."""
    queues = status["queues"]
    accepted = sum((row["state"] or {}).get("accepted", 0) for row in queues)
    return accepted, sum(row["processed"].get("done", 0) for row in queues)
