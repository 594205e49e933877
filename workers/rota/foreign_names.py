"""Names that other task libraries use, and what to write instead. They appear only in error messages, because
everything in Rota has only one name.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NoReturn

_TIERS: Final = "the priority of a task is the tier of its queue (`tiers` in rota.toml): write queue="
_HOOKS: Final = "hooks are for all tasks: @rota.on_failure, @rota.on_dead, @rota.around_task"
_BY_NAME: Final = 'by name rota.default_client().enqueue("resize", args=[7], queue="images")'

# For each kind of object, pieces of advice. Each has the names from other libraries for which it is given.
_TABLE: Final[Mapping[str, Mapping[str, str]]] = {
    "declaration": {  # options of `@rota.task`
        "write retries=": "max_retries retry max_tries attempts",
        "write base=, in seconds": "default_retry_delay min_backoff retry_delay",
        "write max_delay=, in seconds": "retry_backoff_max max_backoff",
        'write backoff="exponential" (the default) and base=, in seconds': "retry_backoff",
        "write jitter=": "retry_jitter",
        "write retries= and base=": "retry_kwargs",
        "write retry_on=, with the exceptions": "autoretry_for retry_when",
        "write dead_on=, with the exceptions that must not be retried": "throws dont_autoretry_for",
        "a task gets no self: call rota.current_task() in it, and raise rota.Retry(delay=60) to try again": "bind",
        _TIERS: "priority",
        "pass it at each call, .enqueue_in(60, ...) or .using(delay=60).enqueue(...)": "countdown delay defer",
        "pass it at each call, .enqueue_at(when, ...) or .using(at=when).enqueue(...)": "eta at run_at",
        "all tasks work this way: leave it out": "acks_late reject_on_worker_lost track_started",
        "write time_limit=, in seconds": "timeout job_timeout hard_time_limit",
        "write result_ttl=, in seconds": "ignore_result store_results store_result keep_result",
        'write rate="10/m"': "rate_limit",
        "write queue=": "queue_name routing_key exchange",
        "write name=": "actor_name task_name",
        "write expires=, in seconds": "max_age ttl",
        "write unique=True": "lock queueing_lock once unique_until",
        'write cron="0 3 * * *" or every=60': "schedule crontab periodic run_every",
        "give the queue a cap, [queues.NAME] in rota.toml": "concurrency max_concurrency",
        _HOOKS: "on_failure on_success on_retry",
        "arguments are JSON: leave it out": "serializer",
    },
    "table": {  # keys of `[tasks.NAME]` and `[queues.NAME]`
        "write time_limit_seconds": "timeout job_timeout hard_time_limit",
        "write soft_time_limit_seconds": "soft_timeout",
        "the order of the queues in tiers is their priority": "priority",
        "write cap": "concurrency max_concurrency",
        "write retries": "max_retries attempts",
    },
    "call": {  # options of `using`
        "write delay=, in seconds": "countdown",
        "write at=, an aware datetime": "eta",
        f"{_TIERS}; front=True puts one call at the head of its lane": "priority",
        "write id=": "task_id job_id message_id jid",
        "write retries=": "max_retries retry attempts",
        "write queue=": "queue_name routing_key",
        "arguments follow, as in .using(...).enqueue(7)": "args kwargs",
        "write rota.chain(resize.call(7), notify.call(7)), or pass then= and on_dead= to rota.group": "link link_error",
        "write time_limit= where the task is declared, in @rota.task(...)": "job_timeout timeout",
    },
    "schedule": {  # options of `rota.Cron` and `rota.Every`
        'write all five in one string, rota.Cron("5 0 * * *")': (
            "minute hour day day_of_month month month_of_year day_of_week weekday second"
        ),
        "an interval is seconds or timedelta, rota.Every(60), rota.Every(timedelta(minutes=5))": (
            "seconds minutes hours days weeks run_every schedule"
        ),
        'write timezone="Europe/Zurich"': "tz tzinfo nowfun",
        "write start= and end=, aware datetimes": "start_date end_date start_time end_time",
    },
    "configure": {  # options of `rota.configure`
        'write redis_url="redis://localhost:6379/0"': "url broker broker_url redis host backend result_backend dsn",
        "write timeout_seconds=": "timeout socket_timeout",
        "write namespace=": "prefix name key_prefix",
        "the settings of the fleet are in rota.toml": "tiers queues workers concurrency imports include",
    },
    "task": {  # attributes of a task
        "write .enqueue(...)": "delay send perform_async kiq defer submit",
        "write .using(delay=60).enqueue(...)": "apply_async send_with_options kicker configure set",
        "write .enqueue_in(60, ...)": "perform_in schedule",
        "write .enqueue_at(when, ...)": "perform_at",
        "write .call(...), for rota.enqueue_many([...])": "s si signature subtask message message_with_options",
        "call it as the function, resize(...)": "apply call_local run fn",
        "write rota.map(resize, items), or rota.enqueue_many(resize.call(n) for n in ...)": (
            "map starmap chunks enqueue_many aenqueue_many"
        ),
        "inside a task, raise rota.Retry(delay=60)": "retry",
        "inside a task, write rota.current_task()": "request",
        "inside a task, write rota.current_task().progress(done, total)": "update_state",
        "write rota.status(id), or rota.default_client().result(id)": "AsyncResult fetch_job",
    },
    "using": {  # attributes of the object that `using` returns
        "write .using(delay=60, ...).enqueue(...)": "enqueue_in",
        "write .using(at=when, ...).enqueue(...)": "enqueue_at",
        "pass all options to one .using(...)": "using",
    },
    "handle": {  # attributes of a handle, which an enqueue returns
        "write .result(timeout=5)": "get get_result return_value latest_result",
        "write .wait(timeout=5)": "join",
        "write .status().state": "ready successful failed state get_status is_finished is_failed refresh",
        "write .id": "task_id job_id message_id get_id",
        "write .cancel()": "revoke abort delete kill",
        "write .status(): its `death` has the reason why a task is dead": "traceback exc_info info",
    },
    "flow": {  # attributes of a chain and of a group
        "write .enqueue()": "delay apply_async send run kiq submit defer",
        "write .enqueue(): the handle that it returns has this name": "wait status cancel add get join",
        'pass them to its calls: rota.chain(resize.using(queue="images").call(7), ...)': "using set options",
    },
    "map": {  # options of `rota.map`
        "write chunk=": "chunksize chunk_size batch_size",
        "write max_waiting=": "max_pending maxsize limit concurrency buffer_size",
        "write id=": "group_id batch_id",
        "write then=": "callback on_success on_complete",
        "write on_dead=": "error_callback on_error on_failure",
        "set options of the calls with the task: rota.map(resize.using(queue=...), items)": "queue retries delay",
    },
    "client": {  # attributes of a client
        'write .enqueue("resize", args=[7], queue="images")': "send_task add_task push send submit enqueue_call delay",
        'write .enqueue("resize", args=[7], queue="images", delay=60)': "enqueue_in schedule",
        'write .enqueue("resize", args=[7], queue="images", at=when)': "enqueue_at",
        "write .status(id)": "AsyncResult fetch_job get_status get_job",
        "write .result(id)": "get_result get",
        "write .cancel(id)": "revoke abort cancel_job",
        "write @rota.task: tasks belong to no client": "task actor",
    },
    "current task": {  # attributes of `rota.current_task()`
        "raise rota.Retry(delay=60)": "retry",
        'raise rota.Dead("why")': "reject",
        "write .progress(done, total)": "update_state",
        "write .attempt, which counts from 1": "retries retry_count job_try",
        "write .id": "task_id job_id message_id",
        "the arguments are the parameters of the function": "args kwargs",
    },
    "package": {  # names of the package
        f"write resize.enqueue(7); {_BY_NAME}": "enqueue delay send send_task apply_async",
        "write resize.enqueue_in(60, 7) or resize.enqueue_at(when, 7)": "enqueue_in enqueue_at",
        "write rota.configure(redis_url=...), or nothing if rota.toml or ROTA_REDIS_URL has it": (
            "Celery Rota Huey RedisHuey App Broker RedisBroker set_broker Queue Redis connect"
        ),
        "write @rota.task": "actor job shared_task periodic_task broker",
        "write rota.status(id), or rota.default_client().result(id)": "AsyncResult Job fetch_job result get",
        'write rota.Cron("0 3 * * *"), or @rota.task(cron="0 3 * * *")': "crontab Crontab schedule",
        "write rota.group([...], then=notify.call(7))": "chord Batch batch flow FlowProducer",
        "write rota.chain(resize.call(7), notify.call(7))": "pipeline",
        "write resize.call(7)": "signature",
        "write rota.map(resize, items)": "xmap starmap chunks",
        "workers are started by the command `rota run`": "Worker run run_worker start",
        "write rota.current_task()": "get_current_task current_job get_current_job CurrentMessage",
        'raise rota.Dead("why")': "Ignore Reject Abort",
        "write rota.TimeLimit": "SoftTimeLimitExceeded",
        "hooks are @rota.on_worker_start, on_worker_stop, on_failure, on_dead and around_task": (
            "on_success signals before_task after_task middleware"
        ),
        "write rota.configure(redis_url=...); the settings of a fleet are in rota.toml": "conf config app",
        "write handle.wait(timeout=5): an enqueue returns the handle": "wait join",
    },
}


def _by_name(kind: str) -> dict[str, str]:
    return {name: advice for advice, names in _TABLE[kind].items() for name in names.split()}


FOREIGN_NAMES: Final = {kind: _by_name(kind) for kind in _TABLE}
"""The advice for each foreign name of each kind of object."""
FOREIGN_NAMES["using"] = FOREIGN_NAMES["task"] | FOREIGN_NAMES["using"]


def fault_in_option(name: str, owner: str, names: Mapping[str, str], options: Iterable[str]) -> str:
    """Return the error message for an option that does not exist.

    The message has advice if another library uses the name for an option. Otherwise it lists the valid options.
    """
    if advice := names.get(name):
        return f"{owner} has no option {name!r}: {advice}"
    known = list(options)
    return f"{owner} has no option {name!r}{nearest(name, known) or ';'} its options are {', '.join(known)}"


def fault_in_attribute(name: str, owner: str, names: Mapping[str, str]) -> str:
    """Return the error message for an attribute that does not exist. Python itself adds a suggestion if it finds a
    similar name."""
    advice = names.get(name)
    return f"{owner} has no attribute {name!r}" + (f": {advice}" if advice else "")


def nearest(name: str, known: Iterable[str]) -> str:
    """Return `, did you mean 'x'?` for the nearest known name, or "" if no known name is similar."""
    import difflib  # noqa: PLC0415 - needed only for messages

    near = difflib.get_close_matches(name, list(known), n=1)
    return f", did you mean {near[0]!r}?" if near else ""


class KnowsForeignNames:
    """A base class whose objects explain what to write instead of a foreign name.

    Each foreign name is an attribute that raises AttributeError. A `__getattr__` would slow down every other attribute.
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
