"""The hard time limit is a failure of the attempt, as an exception is. What follows from it was decided by the worker,
which left it in its slot."""

from collections.abc import Iterator

from rota.child.slot_task import TaskInSlot, Verdict
from rota.protocol.entry import MICROSECONDS, parse_entry
from rota.protocol.epitaph import TIME_LIMIT
from rota.protocol.outcome import DeadOutcome, RetryOutcome, Settlement
from rota.telemetry import events as names
from rota.telemetry import metrics as m
from rota_supervisor.master.core import effects as do
from rota_supervisor.master.core.death import Death, epitaph_of
from rota_supervisor.master.core.reasons import Reason


def verdict_on(task: TaskInSlot | None) -> Verdict:
    """What its worker said of the task that ran; of none, nothing."""
    return Verdict() if task is None else Verdict.from_word(task.verdict)


def settlement_of(death: Death) -> Settlement | None:
    """What becomes of a task that was ended by its hard time limit; None when another death is to be judged."""
    task, verdict = death.event.task, verdict_on(death.event.task)
    if task is None or death.reason is not Reason.TIMEOUT or not verdict.is_said:
        return None
    try:
        entry = parse_entry(task.entry)
    except (ValueError, KeyError):  # the task wrote over it
        return None
    account = epitaph_of(death, TIME_LIMIT)
    outcome = DeadOutcome(account) if verdict.retry_us is None else RetryOutcome(verdict.retry_us, account)
    return Settlement(entry, outcome)


def tell(settlement: Settlement, asked: do.Retire) -> Iterator[do.Effect]:
    """Log and count a failure by the time limit, as a worker does with those that it sees itself."""
    entry, outcome = settlement.entry, settlement.outcome
    task, queue = asked.task_name, entry.queue
    fields = {"task_id": entry.id, "task": task, "queue": queue, "owner": asked.owner, "attempt": entry.attempt}
    if isinstance(outcome, RetryOutcome):
        yield do.AddToCounter(m.TASKS_PROCESSED, (queue, task, "retry"))
        yield do.AddToCounter(m.TASK_RETRIES, (queue, task))
        seconds = outcome.delay_us / MICROSECONDS
        yield do.warning(names.TASK_RETRIED, **fields, reason=TIME_LIMIT, retry_in_seconds=seconds)
    else:
        yield do.AddToCounter(m.TASKS_PROCESSED, (queue, task, "dead"))
        yield do.AddToCounter(m.TASKS_DEAD, (queue, task, TIME_LIMIT))
        yield do.error(names.TASK_DEAD, **fields, reason=TIME_LIMIT)
