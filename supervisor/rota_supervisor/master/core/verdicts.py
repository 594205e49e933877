"""The hard time limit is a failure of the attempt, as an exception is. What follows from it was decided by the worker,
which left it in its slot."""

from collections.abc import Iterator

from rota.child.slot_task import TaskInSlot, Verdict
from rota.protocol.ends import TIME_LIMIT
from rota.protocol.entry import MICROSECONDS, parse_entry
from rota.protocol.outcome import DeadOutcome, RetryOutcome, Settlement
from rota.telemetry import log_events as names
from rota.telemetry import metrics as m
from rota_supervisor.master.core import effects as do
from rota_supervisor.master.core.death import Death, epitaph_of
from rota_supervisor.master.core.reasons import Reason


def settlements_of(death: Death) -> tuple[Settlement, ...]:
    """What becomes of the tasks that were ended by their hard time limit; nothing after another death."""
    if death.reason is not Reason.TIMEOUT:
        return ()
    return tuple(found for task in death.guilty if (found := _settlement_of(death, task)) is not None)


def _settlement_of(death: Death, task: TaskInSlot) -> Settlement | None:
    verdict = Verdict.from_word(task.verdict)
    if not verdict.is_said:
        return None
    try:
        entry = parse_entry(task.entry)
    except (ValueError, KeyError):  # the task wrote over it
        return None
    account = epitaph_of(death, task, TIME_LIMIT)
    outcome = DeadOutcome(account) if verdict.retry_us is None else RetryOutcome(verdict.retry_us, account)
    return Settlement(entry, outcome)


def tell(settlement: Settlement, asked: do.Retire) -> Iterator[do.Effect]:
    """Log and count a failure by the time limit, as a worker does with those that it sees itself."""
    entry, outcome = settlement.entry, settlement.outcome
    task, queue = asked.name_of(entry.id), entry.queue
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
