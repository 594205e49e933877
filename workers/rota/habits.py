"""What people write who come from another task library, and what to write here instead.

Read by nobody but the messages of errors: nothing works under two names.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar, Final

_TIERS: Final = "priorities are tiers of queues, `tiers` in rota.toml: give queue="
_LATER: Final = "say it at each call, .enqueue_in(60, ...) or .using(delay=60).enqueue(...)"
_AT: Final = "say it at each call, .enqueue_at(when, ...) or .using(at=when).enqueue(...)"
_ALWAYS: Final = "every task is handled so: leave it out"
_RETRIES: Final = "write retries="

OF_A_DECLARATION: Final = {
    **dict.fromkeys(("max_retries", "retry", "max_tries", "attempts"), _RETRIES),
    **dict.fromkeys(("default_retry_delay", "min_backoff", "retry_delay"), "write base=, in seconds"),
    **dict.fromkeys(("retry_backoff_max", "max_backoff", "retry_backoff_maximum"), "write max_delay=, in seconds"),
    "retry_backoff": 'write backoff="exponential" (the default) and base=, in seconds',
    "retry_jitter": "write jitter=",
    "retry_kwargs": "write retries= and base=",
    "retry_when": "write retry_on=, with the exceptions",
    "autoretry_for": "write retry_on=, with the exceptions",
    "throws": "write dead_on=, with the exceptions that no retry helps against",
    "dont_autoretry_for": "write dead_on=, with the exceptions that no retry helps against",
    "bind": "a task gets no self: call rota.current_task() in it, and raise rota.Retry(delay=60) to try again",
    "priority": _TIERS,
    **dict.fromkeys(("countdown", "delay", "defer"), _LATER),
    **dict.fromkeys(("eta", "at", "run_at"), _AT),
    **dict.fromkeys(("acks_late", "reject_on_worker_lost", "track_started"), _ALWAYS),
    **dict.fromkeys(("timeout", "job_timeout", "hard_time_limit"), "write time_limit=, in seconds"),
    **dict.fromkeys(("ignore_result", "store_results", "store_result", "keep_result"), "write result_ttl=, in seconds"),
    "rate_limit": 'write rate="10/m"',
    **dict.fromkeys(("queue_name", "routing_key", "exchange"), "write queue="),
    **dict.fromkeys(("actor_name", "task_name"), "write name="),
    **dict.fromkeys(("max_age", "ttl"), "write expires=, in seconds"),
    **dict.fromkeys(("lock", "queueing_lock", "once", "unique_until"), "write unique=True"),
    **dict.fromkeys(("schedule", "crontab", "periodic", "run_every"), 'write cron="0 3 * * *" or every=60'),
    **dict.fromkeys(("concurrency", "max_concurrency"), "give the queue a cap, [queues.NAME] in rota.toml"),
    **dict.fromkeys(("on_failure", "on_success"), "hooks are for all tasks: @rota.on_dead, @rota.around_task"),
    "serializer": "arguments are JSON: leave it out",
}
"""Options of `@rota.task`."""

OF_A_CALL: Final = {
    "countdown": "write delay=, in seconds",
    "eta": "write at=, an aware datetime",
    "priority": _TIERS + "; front=True puts one call to the head of its lane",
    **dict.fromkeys(("task_id", "job_id", "message_id", "jid"), "write id="),
    **dict.fromkeys(("max_retries", "retry", "attempts"), _RETRIES),
    **dict.fromkeys(("queue_name", "routing_key"), "write queue="),
    **dict.fromkeys(("args", "kwargs"), "arguments follow: .using(...).enqueue(7, size='s')"),
    **dict.fromkeys(("link", "link_error"), "there are no chains: have the task enqueue what comes next"),
    **dict.fromkeys(("job_timeout", "timeout"), "time_limit= is said where the task is declared, in @rota.task(...)"),
}
"""Options of `using`, besides those that only a declaration takes."""

_CHAINS: Final = "there are no chains or groups: have a task enqueue what comes next"
_ENQUEUE: Final = "write .enqueue(...)"
_USING: Final = "write .using(delay=60).enqueue(...)"
_CALL: Final = "write .call(...), for rota.enqueue_many([...])"

OF_A_TASK: Final = {
    **dict.fromkeys(("delay", "send", "perform_async", "kiq", "defer", "apply_later", "submit"), _ENQUEUE),
    **dict.fromkeys(("apply_async", "send_with_options", "kicker", "configure", "options_for", "set"), _USING),
    **dict.fromkeys(("perform_in", "schedule", "enqueue_later"), "write .enqueue_in(60, ...)"),
    "perform_at": "write .enqueue_at(when, ...)",
    **dict.fromkeys(("s", "si", "signature", "subtask", "message", "message_with_options"), _CALL),
    **dict.fromkeys(("apply", "call_local", "run", "fn"), "call it as the function, resize(...)"),
    **dict.fromkeys(("map", "starmap", "chunks"), "write rota.enqueue_many(resize.call(n) for n in ...)"),
    "retry": "inside a task, raise rota.Retry(delay=60)",
    "request": "inside a task, write rota.current_task()",
    "update_state": "inside a task, write rota.current_task().progress(done, total)",
    **dict.fromkeys(("AsyncResult", "fetch_job"), "write rota.status(id), or rota.default_client().result(id)"),
}
"""Attributes of a task."""

OF_USING: Final = OF_A_TASK | {
    "enqueue_in": "write .using(delay=60, ...).enqueue(...)",
    "enqueue_at": "write .using(at=when, ...).enqueue(...)",
    "using": "give all options to one .using(...)",
}
"""Attributes of what `using` returns."""

OF_A_HANDLE: Final = {
    **dict.fromkeys(("get", "get_result", "return_value", "latest_result"), "write .result(timeout=5)"),
    "join": "write .wait(timeout=5)",
    **dict.fromkeys(("ready", "successful", "failed", "state", "get_status", "is_finished", "is_failed", "refresh"),
                    "write .status().state"),
    **dict.fromkeys(("task_id", "job_id", "message_id", "get_id"), "write .id"),
    **dict.fromkeys(("revoke", "abort", "delete", "kill"), "write .cancel()"),
    **dict.fromkeys(("traceback", "exc_info", "info"), "write .status(): its epitaph says why a task is dead"),
    **dict.fromkeys(("forget", "then", "children"), "leave it out: there is none"),
}  # fmt: skip
"""Attributes of what an enqueue returns."""

OF_A_CLIENT: Final = {
    **dict.fromkeys(("send_task", "add_task", "push", "send", "submit", "enqueue_call", "delay"),
                    'write .enqueue("resize", args=[7], queue="images")'),
    **dict.fromkeys(("enqueue_in", "schedule"), 'write .enqueue("resize", args=[7], queue="images", delay=60)'),
    "enqueue_at": 'write .enqueue("resize", args=[7], queue="images", at=when)',
    **dict.fromkeys(("AsyncResult", "fetch_job", "get_status", "get_job"), "write .status(id)"),
    "get_result": "write .result(id)",
    **dict.fromkeys(("revoke", "abort", "cancel_job"), "write .cancel(id)"),
    **dict.fromkeys(("task", "actor"), "write @rota.task: tasks belong to no client"),
}  # fmt: skip
"""Attributes of a client."""

OF_THE_CURRENT_TASK: Final = {
    "retry": "raise rota.Retry(delay=60)",
    "reject": 'raise rota.Dead("why")',
    "update_state": "write .progress(done, total)",
    **dict.fromkeys(("retries", "retry_count", "job_try"), "write .attempt, which counts from 1"),
    **dict.fromkeys(("task_id", "job_id", "message_id"), "write .id"),
    **dict.fromkeys(("args", "kwargs"), "they are the parameters of the function"),
    "heartbeat": "write .beat()",
}
"""Attributes of `rota.current_task()`."""

OF_THE_PACKAGE: Final = {
    **dict.fromkeys(("enqueue", "delay", "send", "send_task", "apply_async"),
                    'write resize.enqueue(7); by name rota.default_client().enqueue("resize", args=[7], queue="images")'),
    **dict.fromkeys(("enqueue_in", "enqueue_at"), "write resize.enqueue_in(60, 7) or resize.enqueue_at(when, 7)"),
    **dict.fromkeys(("Celery", "Rota", "Huey", "App", "Broker", "RedisBroker", "Queue", "Redis", "connect", "set_broker"),
                    "write rota.configure(redis_url=...), or nothing where rota.toml or ROTA_REDIS_URL says it"),
    **dict.fromkeys(("actor", "job", "shared_task", "periodic_task", "broker"), "write @rota.task"),
    **dict.fromkeys(("AsyncResult", "Job", "fetch_job"), "write rota.status(id), or rota.default_client().result(id)"),
    **dict.fromkeys(("result", "get"), "write rota.default_client().result(id)"),
    **dict.fromkeys(("crontab", "Crontab", "schedule"), 'write rota.Cron("0 3 * * *"), or @rota.task(cron="0 3 * * *")'),
    **dict.fromkeys(("chain", "group", "chord", "pipeline", "signature", "Chain", "Group"), _CHAINS),
    **dict.fromkeys(("Worker", "run", "run_worker", "start"), "workers are started by the command `rota run`"),
    **dict.fromkeys(("get_current_task", "current_job", "get_current_job", "CurrentMessage"), "write rota.current_task()"),
    **dict.fromkeys(("Ignore", "Reject", "Abort"), 'raise rota.Dead("why")'),
    "SoftTimeLimitExceeded": "write rota.TimeLimit",
}  # fmt: skip
"""Names of the package."""


def fault_in_option(word: str, owner: str, habits: Mapping[str, str], options: Iterable[str]) -> str:
    """What to say of an option that there is not."""
    if advice := habits.get(word):
        return f"{owner} has no option {word!r}: {advice}"
    known = list(options)
    return f"{owner} has no option {word!r}{nearest(word, known)}; its options are {', '.join(known)}"


def fault_in_attribute(word: str, owner: str, habits: Mapping[str, str]) -> str:
    """What to say of an attribute that there is not. Python adds what is spelt alike."""
    advice = habits.get(word)
    return f"{owner} has no attribute {word!r}" + (f": {advice}" if advice else "")


def nearest(word: str, known: Iterable[str]) -> str:
    """`, did you mean 'x'?` for the nearest known word, "" when none is near."""
    import difflib  # noqa: PLC0415 - for messages alone

    near = difflib.get_close_matches(word, list(known), n=1)
    return f", did you mean {near[0]!r}?" if near else ""


class KnowsHabits:
    """Answers a word that other libraries have with what to write here."""

    __slots__ = ()
    _habits: ClassVar[Mapping[str, str]] = {}

    if not TYPE_CHECKING:  # for type checkers there is no such attribute

        def __getattr__(self, name: str) -> object:
            raise AttributeError(fault_in_attribute(name, f"{type(self).__name__!r} object", self._habits))
