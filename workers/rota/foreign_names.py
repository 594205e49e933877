"""Names that other task libraries use, and what to write instead in Rota.

These names appear only in error messages, because everything in Rota has only one name.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NoReturn

_TIERS: Final = "the priority of a task is the tier of its queue (`tiers` in rota.toml): use queue="
_HOOKS: Final = "a hook applies to all tasks: use @rota.on_failure, @rota.on_dead or @rota.around_task"
_BY_NAME: Final = 'to enqueue by name, use rota.default_client().enqueue("resize", args=[7], queue="images")'

# For each kind of object, pieces of advice, each with the names from other libraries for which it is given.
_TABLE: Final[Mapping[str, Mapping[str, str]]] = {
    "declaration": {  # options of `@rota.task`
        "use retries=": "max_retries retry max_tries attempts",
        "use base=, in seconds": "default_retry_delay min_backoff retry_delay",
        "use max_delay=, in seconds": "retry_backoff_max max_backoff",
        'use backoff="exponential" (the default) and base=, in seconds': "retry_backoff",
        "use jitter=": "retry_jitter",
        "use retries= and base=": "retry_kwargs",
        "use retry_on= with the exceptions to retry": "autoretry_for retry_when",
        "use dead_on= with the exceptions that must not be retried": "throws dont_autoretry_for",
        "a task gets no self: in the task, call rota.current_task(), and raise rota.Retry(delay=60) to try "
        "again": "bind",
        _TIERS: "priority",
        "pass it with each call: .enqueue_in(60, ...) or .using(delay=60).enqueue(...)": "countdown delay defer",
        "pass it with each call: .enqueue_at(when, ...) or .using(at=when).enqueue(...)": "eta at run_at",
        "all tasks work this way, so leave the option out": "acks_late reject_on_worker_lost track_started",
        "use time_limit=, in seconds": "timeout job_timeout hard_time_limit",
        "use result_ttl=, in seconds": "ignore_result store_results store_result keep_result",
        'use rate="10/m"': "rate_limit",
        "use queue=": "queue_name routing_key exchange",
        "use name=": "actor_name task_name",
        "use expires=, in seconds": "max_age ttl",
        "use unique=True": "lock queueing_lock once unique_until",
        'use cron="0 3 * * *" or every=60': "schedule crontab periodic run_every",
        "set a cap for the queue, under [queues.NAME] in rota.toml": "concurrency max_concurrency",
        _HOOKS: "on_failure on_success on_retry",
        "arguments are always JSON, so leave the option out": "serializer",
    },
    "table": {  # keys of `[tasks.NAME]` and `[queues.NAME]`
        "use time_limit_seconds": "timeout job_timeout hard_time_limit",
        "use soft_time_limit_seconds": "soft_timeout",
        "the position of a queue in `tiers` is its priority": "priority",
        "use cap": "concurrency max_concurrency",
        "use retries": "max_retries attempts",
    },
    "call": {  # options of `using`
        "use delay=, in seconds": "countdown",
        "use at= with an aware datetime": "eta",
        f"{_TIERS}; front=True puts one call at the head of its lane": "priority",
        "use id=": "task_id job_id message_id jid",
        "use retries=": "max_retries retry attempts",
        "use queue=": "queue_name routing_key",
        "pass the arguments to enqueue, as in .using(...).enqueue(7)": "args kwargs",
        "use rota.chain(resize.call(7), notify.call(7)), or pass then= and on_dead= to rota.group": "link link_error",
        "set time_limit= where the task is declared, in @rota.task(...)": "job_timeout timeout",
    },
    "schedule": {  # options of `rota.Cron` and `rota.Every`
        'write all five fields in one string, as in rota.Cron("5 0 * * *")': (
            "minute hour day day_of_month month month_of_year day_of_week weekday second"
        ),
        "an interval is a number of seconds or a timedelta, as in rota.Every(60) or rota.Every(timedelta(minutes=5))": (
            "seconds minutes hours days weeks run_every schedule"
        ),
        'use timezone="Europe/Zurich"': "tz tzinfo nowfun",
        "use start= and end= with aware datetimes": "start_date end_date start_time end_time",
    },
    "configure": {  # options of `rota.configure`
        'use redis_url="redis://localhost:6379/0"': "url broker broker_url redis host backend result_backend dsn",
        "use timeout_seconds=": "timeout socket_timeout",
        "use namespace=": "prefix name key_prefix",
        "the settings of the fleet are in rota.toml": "tiers queues workers concurrency imports include",
    },
    "task": {  # attributes of a task
        "use .enqueue(...)": "delay send perform_async kiq defer submit",
        "use .using(delay=60).enqueue(...)": "apply_async send_with_options kicker configure set",
        "use .enqueue_in(60, ...)": "perform_in schedule",
        "use .enqueue_at(when, ...)": "perform_at",
        "use .call(...), for rota.enqueue_many([...])": "s si signature subtask message message_with_options",
        "call the task like a function, as in resize(...)": "apply call_local run fn",
        "use rota.map(resize, items), or rota.enqueue_many(resize.call(n) for n in ...)": (
            "map starmap chunks enqueue_many aenqueue_many"
        ),
        "inside a task, raise rota.Retry(delay=60)": "retry",
        "inside a task, use rota.current_task()": "request",
        "inside a task, use rota.current_task().progress(done, total)": "update_state",
        "use rota.status(id), or rota.default_client().result(id)": "AsyncResult fetch_job",
    },
    "using": {  # attributes of the object that `using` returns
        "use .using(delay=60, ...).enqueue(...)": "enqueue_in",
        "use .using(at=when, ...).enqueue(...)": "enqueue_at",
        "pass all options to one .using(...)": "using",
    },
    "handle": {  # attributes of the handle that an enqueue returns
        "use .result(timeout=5)": "get get_result return_value latest_result",
        "use .wait(timeout=5)": "join",
        "use .status().state": "ready successful failed state get_status is_finished is_failed refresh",
        "use .id": "task_id job_id message_id get_id",
        "use .cancel()": "revoke abort delete kill",
        "use .status(), whose `death` shows why a task is dead": "traceback exc_info info",
    },
    "flow": {  # attributes of a chain and of a group
        "use .enqueue()": "delay apply_async send run kiq submit defer",
        "use .enqueue(), which returns a handle with this attribute": "wait status cancel add get join",
        'set options on its calls, as in rota.chain(resize.using(queue="images").call(7), ...)': "using set options",
    },
    "map": {  # options of `rota.map`
        "use chunk=": "chunksize chunk_size batch_size",
        "use max_waiting=": "max_pending maxsize limit concurrency buffer_size",
        "use id=": "group_id batch_id",
        "use then=": "callback on_success on_complete",
        "use on_dead=": "error_callback on_error on_failure",
        "set options on the task, as in rota.map(resize.using(queue=...), items)": "queue retries delay",
    },
    "client": {  # attributes of a client
        'use .enqueue("resize", args=[7], queue="images")': "send_task add_task push send submit enqueue_call delay",
        'use .enqueue("resize", args=[7], queue="images", delay=60)': "enqueue_in schedule",
        'use .enqueue("resize", args=[7], queue="images", at=when)': "enqueue_at",
        "use .status(id)": "AsyncResult fetch_job get_status get_job",
        "use .result(id)": "get_result get",
        "use .cancel(id)": "revoke abort cancel_job",
        "use @rota.task: a task does not belong to a client": "task actor",
    },
    "current task": {  # attributes of `rota.current_task()`
        "raise rota.Retry(delay=60)": "retry",
        'raise rota.Dead("why")': "reject",
        "use .progress(done, total)": "update_state",
        "use .attempt, which counts from 1": "retries retry_count job_try",
        "use .id": "task_id job_id message_id",
        "the arguments are the parameters of the function": "args kwargs",
    },
    "package": {  # names of the package
        f"use resize.enqueue(7); {_BY_NAME}": "enqueue delay send send_task apply_async",
        "use resize.enqueue_in(60, 7) or resize.enqueue_at(when, 7)": "enqueue_in enqueue_at",
        "use rota.configure(redis_url=...), which is not needed if rota.toml or ROTA_REDIS_URL names the server": (
            "Celery Rota Huey RedisHuey App Broker RedisBroker set_broker Queue Redis connect"
        ),
        "use @rota.task": "actor job shared_task periodic_task broker",
        "use rota.status(id), or rota.default_client().result(id)": "AsyncResult Job fetch_job result get",
        'use rota.Cron("0 3 * * *"), or @rota.task(cron="0 3 * * *")': "crontab Crontab schedule",
        "use rota.group([...], then=notify.call(7))": "chord Batch batch flow FlowProducer",
        "use rota.chain(resize.call(7), notify.call(7))": "pipeline",
        "use resize.call(7)": "signature",
        "use rota.map(resize, items)": "xmap starmap chunks",
        "workers are started by the command `rota run`": "Worker run run_worker start",
        "use rota.current_task()": "get_current_task current_job get_current_job CurrentMessage",
        'raise rota.Dead("why")': "Ignore Reject Abort",
        "use rota.TimeLimit": "SoftTimeLimitExceeded",
        "the hooks are @rota.on_worker_start, on_worker_stop, on_failure, on_dead and around_task": (
            "on_success signals before_task after_task middleware"
        ),
        "use rota.configure(redis_url=...); the settings of a fleet are in rota.toml": "conf config app",
        "use handle.wait(timeout=5) with the handle that an enqueue returns": "wait join",
    },
}


def _by_name(kind: str) -> dict[str, str]:
    return {name: advice for advice, names in _TABLE[kind].items() for name in names.split()}


FOREIGN_NAMES: Final = {kind: _by_name(kind) for kind in _TABLE}
"""The advice for each foreign name of each kind of object."""
FOREIGN_NAMES["using"] = FOREIGN_NAMES["task"] | FOREIGN_NAMES["using"]


def fault_in_option(name: str, owner: str, names: Mapping[str, str], options: Iterable[str]) -> str:
    """Return the error message for an option that does not exist.

    If the name is that of an option in another library, the message gives advice. Otherwise it lists the valid options.
    """
    if advice := names.get(name):
        return f"{owner} has no option {name!r}: {advice}"
    known = list(options)
    return f"{owner} has no option {name!r}{nearest(name, known) or ';'} its options are {', '.join(known)}"


def fault_in_attribute(name: str, owner: str, names: Mapping[str, str]) -> str:
    """Return the error message for an attribute that does not exist. If there is a similar name, Python itself adds a
    suggestion to the message."""
    advice = names.get(name)
    return f"{owner} has no attribute {name!r}" + (f": {advice}" if advice else "")


def nearest(name: str, known: Iterable[str]) -> str:
    """Return `, did you mean 'x'?` for the nearest known name, or "" if no known name is similar."""
    import difflib  # noqa: PLC0415 - needed only for messages

    near = difflib.get_close_matches(name, list(known), n=1)
    return f", did you mean {near[0]!r}?" if near else ""


class KnowsForeignNames:
    """A base class whose objects explain what to write instead of a foreign name.

    Each foreign name is an attribute that raises AttributeError. A `__getattr__` would slow down access to other
    attributes.
    """

    __slots__ = ()

    def __init_subclass__(cls, kind: str = "", **more: Any) -> None:
        super().__init_subclass__(**more)
        for name, advice in FOREIGN_NAMES[kind].items() if kind else ():
            if not hasattr(cls, name):
                setattr(cls, name, _Foreign(name, advice))

    def __dir__(self) -> list[str]:
        foreign = {
            name for base in type(self).__mro__ for name, value in vars(base).items() if isinstance(value, _Foreign)
        }
        return sorted(set(super().__dir__()) - foreign)


class _Foreign:
    """An attribute with a foreign name. Reading it raises AttributeError."""

    __slots__ = ("_advice", "_name")

    def __init__(self, name: str, advice: str) -> None:
        self._name = name
        self._advice = advice

    def __repr__(self) -> str:
        return f"<none: {self._advice}>"

    def __get__(self, _instance: object, owner: type) -> NoReturn:
        raise AttributeError(fault_in_attribute(self._name, f"{owner.__name__!r} object", {self._name: self._advice}))
