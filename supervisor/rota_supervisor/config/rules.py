"""The rules about combinations of keys in a configuration. The type of each key has been checked before.

Each rule is a pure function from Config to faults, and is listed with the keys that it compares. A key with a fault has
been set to its default value. Rules that compare such a key are skipped, so that no mistake is reported twice.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator

from rota.errors import InvalidArguments
from rota.protocol.keys import STAR, fault_in_name, fault_in_pattern, fault_in_queue_name, served_as
from rota.schedules.schedule import BadSchedule
from rota.server.address import TlsFiles, parse_address
from rota.tasks.arguments import check_arguments
from rota.tasks.keyring import faults_in
from rota.tasks.options import parse_rate
from rota.telemetry.recorder import MAX_LABEL
from rota_supervisor.config.conditions import check_chunk, longest_closed, parse_hours
from rota_supervisor.config.errors import Fault, shown, suggestion
from rota_supervisor.config.model import Config, ScheduleConfig
from rota_supervisor.config.resolution import (
    EVERY_QUEUE,
    queue_in_key,
    schedule_of,
    served_queues,
    signing_settings,
    worker_range,
)

MAX_WORKERS = 500  # a node has 1,016 slots for workers, and a rolling reload needs two slots for each worker
MAX_PORT = 65_535
SOCKET_PATH_BYTES = 107  # sun_path holds 108 bytes, and the last byte is NUL
MOST_SOURCES = 50  # the maximum number of legacy lists, because the server compares each changed key with all of them
_ADD_IT = ": add it to tiers"
_ANY_QUEUE = "a-queue"  # a stand-in for a queue that is set only in the code
_HOST_NAME = re.compile(r"(?!-)[a-z0-9_-]+(\.[a-z0-9_-]+)*\.?", re.IGNORECASE | re.ASCII)
_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
_PROVIDER = re.compile(rf"{_MODULE.pattern}:{_MODULE.pattern}")

Rule = Callable[[Config], Iterable[Fault]]


def broken_rules(config: Config, faulty: Iterable[str]) -> list[Fault]:
    """Return the faults in the combination of keys. `faulty`: the top-level keys that already have faults. Rules that
    compare these keys are skipped.
    """
    known = set(faulty)
    return [fault for keys, rule in RULES if not known.intersection(keys) for fault in rule(config)]


def _namespace(config: Config) -> Iterator[Fault]:
    if fault := fault_in_name("namespace", config.namespace):
        yield Fault("namespace", fault)


def _redis_url(config: Config) -> Iterator[Fault]:
    tls = TlsFiles(config.redis_tls_ca, config.redis_tls_cert, config.redis_tls_key)
    if fault := _error_of(parse_address, config.redis_url):
        yield Fault("redis_url", fault)
    elif fault := _error_of(parse_address, config.redis_url, tls):
        yield Fault(_tls_key_at_fault(config), fault)


def _error_of(parse: Callable[..., object], *given: object) -> str:
    """Return the message of the error that `parse` raises, or "" if `parse` succeeds."""
    try:
        parse(*given)
    except ValueError as error:
        return str(error)
    return ""


def _redis_credentials(config: Config) -> Iterator[Fault]:
    if not config.redis_credentials:
        return
    if not _PROVIDER.fullmatch(config.redis_credentials):
        yield Fault("redis_credentials", 'expected "module:name", such as "shop.auth:login"')
    if _error_of(parse_address, config.redis_url):
        return  # `_redis_url` reports this fault.
    address = parse_address(config.redis_url)
    if address.username or address.password:
        yield Fault("redis_credentials", "redis_url contains a user or a password: remove them from the URL")


def _tls_key_at_fault(config: Config) -> str:
    """Return the TLS setting to name in the fault. If the server uses TLS and only one of the certificate and the key
    is set, this is the missing one. Otherwise, it is the first TLS setting that has a value.
    """
    is_tls = parse_address(config.redis_url).tls
    if is_tls and bool(config.redis_tls_cert) != bool(config.redis_tls_key):
        return "redis_tls_cert" if config.redis_tls_key else "redis_tls_key"
    return next(key for key in ("redis_tls_ca", "redis_tls_cert", "redis_tls_key") if getattr(config, key))


def _imports(config: Config) -> Iterator[Fault]:
    for number, name in enumerate(config.imports):
        if name.endswith(".py") or not _MODULE.fullmatch(name):
            is_file = name.endswith(".py") or "/" in name
            module = name.removesuffix(".py").strip("./").replace("/", ".")
            hint = f', did you mean "{module}"?' if is_file and _MODULE.fullmatch(module) else ""
            if _PROVIDER.fullmatch(name):  # other programs write `module:name`; `shown` would redact it
                hint = ": name only the module, which is the part before the colon"
            yield Fault(f"imports[{number}]", f'expected a module such as "shop.tasks", got {shown(name)}{hint}')


def _tiers(config: Config) -> Iterator[Fault]:
    if not config.tiers:
        yield Fault("tiers", 'expected at least one tier, as in [["default"]]')
    seen: dict[str, str] = {}
    for number, tier in enumerate(config.tiers):
        if not tier:
            yield Fault(f"tiers[{number}]", "the tier has no queue: remove the tier, or add a queue")
        for index, queue in enumerate(tier):
            path = f"tiers[{number}][{index}]"
            if fault := _fault_in_tier(queue):
                yield Fault(path, fault)
            elif queue in seen:
                yield Fault(path, f'queue "{queue}" is already in {seen[queue]}: remove one of them')
            seen.setdefault(queue, path)


def _fault_in_tier(queue: str) -> str | None:
    if queue == EVERY_QUEUE:
        return f'"{queue}" would take every queue of the namespace: add a prefix, as in "tenant-{STAR}"'
    return fault_in_pattern(queue) if STAR in queue else fault_in_queue_name(queue)


def _queues_in_tiers(config: Config) -> Iterator[Fault]:
    served = served_queues(config)
    for queue in config.queues:
        if queue not in served:
            yield Fault(f"queues.{queue}", f"this queue is in no tier{_hint(queue, served) or _ADD_IT}")


def _hint(queue: str, served: Iterable[str]) -> str:
    """Return advice for a queue that is in no tier, or "" if there is none."""
    pattern = None if STAR in queue else served_as(queue, served)
    if pattern is None:
        return suggestion(queue, served)
    return f' itself: use "{pattern}", which includes it, or add it to tiers'


def _rates(config: Config) -> Iterator[Fault]:
    given = {f"queues.{name}.rate": queue.rate for name, queue in config.queues.items()}
    given |= {f"tasks.{name}.rate": task.rate or "" for name, task in config.tasks.items()}
    for path, rate in given.items():
        if rate and (fault := _error_of(parse_rate, rate)):
            yield Fault(path, fault)


def _conditions(config: Config) -> Iterator[Fault]:
    for name, condition in config.conditions.items():
        if fault := fault_in_name("condition name", name):
            yield Fault(f"conditions.{name}", fault)
        elif condition.hours and condition.lua:
            yield Fault(f"conditions.{name}", "set either hours or lua, not both")
        elif not (condition.hours or condition.lua):
            message = 'set hours, as in "Mon-Fri 08:00-18:00 Europe/Zurich", or lua'
            yield Fault(f"conditions.{name}", message)
        elif condition.hours and (fault := _error_of(parse_hours, condition.hours)):
            yield Fault(f"conditions.{name}.hours", fault)
        elif condition.lua and (fault := _error_of(check_chunk, condition.lua)):
            yield Fault(f"conditions.{name}.lua", fault)


def _conditions_of_queues(config: Config) -> Iterator[Fault]:
    for name, queue in config.queues.items():
        if queue.condition and queue.condition not in config.conditions:
            hint = suggestion(queue.condition, config.conditions) or f": add [conditions.{queue.condition}]"
            yield Fault(f"queues.{name}.condition", f"there is no condition {shown(queue.condition)}{hint}")


def warnings_of_conditions(config: Config) -> list[str]:
    """Return a warning for each condition in use whose hours close a queue long enough for an alert to fire."""
    forgotten = config.alerts.forgotten_seconds
    used = {queue.condition for queue in config.queues.values()}
    closed = {
        name: longest_closed(parse_hours(each.hours))
        for name, each in config.conditions.items()
        if each.hours and name in used
    }
    return [
        f"conditions.{name}.hours: closed for up to {longest.total_seconds() / 3600:g} hours, but after "
        f"alerts.forgotten_seconds ({forgotten:g}) an alert fires for a forgotten queue: set it higher"
        for name, longest in closed.items()
        if longest.total_seconds() > forgotten
    ]


def _tasks(config: Config) -> Iterator[Fault]:
    for name, task in config.tasks.items():
        if fault := fault_in_name("task name", name):
            yield Fault(f"tasks.{name}", fault)
        soft = task.soft_time_limit_seconds
        hard = task.time_limit_seconds or config.limits.time_limit_seconds
        if soft is not None and soft >= hard:
            message = f"expected less than time_limit_seconds ({hard:g}), got {soft:g}"
            yield Fault(f"tasks.{name}.soft_time_limit_seconds", message)


def _workers(config: Config) -> Iterator[Fault]:
    if config.pools and config.workers is not None:
        yield Fault("workers", "set either workers or [pools]: with pools, each pool sets its own number of workers")
    given = {f"pools.{name}.workers": pool.workers for name, pool in config.pools.items()}
    ranges = {path: worker_range(value) for path, value in (given or {"workers": config.workers or 0}).items()}
    for path, size in ranges.items():
        if size.least > size.most:
            yield Fault(path, f'expected the smaller number first, as in "{size.most}..{size.least}", got "{size}"')
    least = sum(size.least for size in ranges.values() if not size.is_fixed)
    if 0 < config.scaling.budget < least:
        message = f"expected at least {least}, the sum of the lower limits of all ranges, got {config.scaling.budget}"
        yield Fault("scaling.budget", message)
    total = sum(max(size) for size in ranges.values())
    if total > MAX_WORKERS:
        message = f"expected at most {MAX_WORKERS} workers on a node, got {total}: start a master on another node"
        yield Fault("pools" if config.pools else "workers", message)


def _pool_queues(config: Config) -> Iterator[Fault]:
    served = served_queues(config)
    for name, pool in config.pools.items():
        if fault := fault_in_name("pool name", name):
            yield Fault(f"pools.{name}", fault)
        if not pool.queues:
            yield Fault(f"pools.{name}.queues", 'expected at least one queue, or "*" for every queue')
        for number, queue in enumerate(pool.queues):
            if queue != EVERY_QUEUE and queue not in served:
                message = f'queue "{queue}" is in no tier{_hint(queue, served) or _ADD_IT}'
                yield Fault(f"pools.{name}.queues[{number}]", message)
            elif queue in pool.queues[:number]:
                yield Fault(f"pools.{name}.queues[{number}]", f'queue "{queue}" is named twice')


def _queues_without_pool(config: Config) -> Iterator[Fault]:
    taken = {queue for pool in config.pools.values() for queue in pool.queues}
    for queue in served_queues(config):
        if config.pools and not taken.intersection((queue, EVERY_QUEUE)):
            yield Fault(
                "pools", f'no pool takes queue "{queue}": add it to the queues of a pool, or use "*" for every queue'
            )


def _adopt(config: Config) -> Iterator[Fault]:
    if len(config.adopt) > MOST_SOURCES:
        yield Fault("adopt", f"expected at most {MOST_SOURCES} keys to adopt from, got {len(config.adopt)}")
    for key, adopt in config.adopt.items():
        if not key or len(key) > MAX_LABEL:
            yield Fault(f"adopt.{key}", f"expected a key with 1 to {MAX_LABEL} characters")
        if key.startswith(f"{{{config.namespace}}}:"):
            message = "this key belongs to the fleet itself: items that are pushed to it need no adoption"
            yield Fault(f"adopt.{key}", message)
        if adopt.task and (fault := fault_in_name("task name", adopt.task)):
            yield Fault(f"adopt.{key}.task", fault)
        if adopt.task and not (adopt.queue or queue_in_key(key)):
            yield Fault(
                f"adopt.{key}.queue", "items that are only the arguments of a task name no queue: set the queue here"
            )


def _queues_of_adopted(config: Config) -> Iterator[Fault]:
    served = served_queues(config)
    for key, adopt in config.adopt.items():
        queue = adopt.queue or queue_in_key(key)
        path = f"adopt.{key}.queue" if adopt.queue else f"adopt.{key}"
        if queue and (fault := fault_in_queue_name(queue)):
            yield Fault(path, fault)
        elif queue and queue not in served:
            other = (
                ", or name a queue that is in a tier" if adopt.queue else ", or set queue to a queue that is in a tier"
            )
            hint = suggestion(queue, served) or _ADD_IT + other
            yield Fault(path, f'queue "{queue}" is in no tier{hint}')


def _lease(config: Config) -> Iterator[Fault]:
    renew = config.lease.renew_seconds
    lease = config.lease.seconds
    if renew >= lease:
        message = f"expected less than lease.seconds ({lease:g}), ideally a quarter of it, got {renew:g}"
        yield Fault("lease.renew_seconds", message)


def _restarts(config: Config) -> Iterator[Fault]:
    first = config.restarts.backoff_seconds
    longest = config.restarts.backoff_max_seconds
    if longest < first:
        message = f"expected at least restarts.backoff_seconds ({first:g}), got {longest:g}"
        yield Fault("restarts.backoff_max_seconds", message)


def _signing(config: Config) -> Iterator[Fault]:
    for setting, fault in faults_in(signing_settings(config)).items():
        yield Fault(f"signing.{setting}", fault)


def _adopted_unsigned(config: Config) -> Iterator[Fault]:
    if config.signing.required and config.adopt:
        message = "programs that push to the keys in [adopt] do not sign, so all their tasks would be dead"
        yield Fault("signing.required", f"{message}: remove [adopt], or set required = false")


def _listen(config: Config) -> Iterator[Fault]:
    listen = config.http.listen
    host, _, port = listen.rpartition(":")
    if listen and not (host and port.isascii() and port.isdecimal() and int(port) <= MAX_PORT):
        expected = f'HOST:PORT with a port from 0 to {MAX_PORT}, as in "127.0.0.1:9477", or "" to turn it off'
        message = f"expected {expected}, got {shown(listen)}"
        yield Fault("http.listen", message)


def _access(config: Config) -> Iterator[Fault]:
    http = config.http
    if bool(http.tls_cert) != bool(http.tls_key):
        yield Fault(f"http.{'tls_cert' if http.tls_key else 'tls_key'}", "for TLS, set both tls_cert and tls_key")
    if http.actions and not http.token_file:
        yield Fault("http.actions", "actions require a token: set http.token_file")
    if http.read_token_file and not http.token_file:
        yield Fault(
            "http.read_token_file",
            "set http.token_file too: a read-only token is used in addition to that of http.token_file",
        )
    for number, name in enumerate(http.allowed_hosts):
        if not _HOST_NAME.fullmatch(name):
            message = f'expected a host name without a port, as in "rota.example.com", got {shown(name)}'
            yield Fault(f"http.allowed_hosts[{number}]", message)


def warnings_of_http(config: Config) -> list[str]:
    """Return a warning if other machines can reach a node that has no token. They can then read only metrics and
    probes."""
    host = config.http.listen.rpartition(":")[0].strip("[]")
    if config.http.token_file or host in ("", "localhost", "::1") or host.startswith("127."):
        return []
    warning = (
        f"http.listen = {shown(config.http.listen)} without http.token_file: other machines may read only /metrics, "
        "/livez and /readyz; the status page and its data are available only on this machine"
    )
    return [warning]


def _paths(config: Config) -> Iterator[Fault]:
    for key, path in (("socket", config.control.socket), ("pid_file", config.control.pid_file)):
        if "\0" in path:
            yield Fault(f"control.{key}", "a path cannot contain a NUL character")
    length = len(config.control.socket.encode(errors="surrogateescape"))
    if length > SOCKET_PATH_BYTES:
        message = f"expected a path of at most {SOCKET_PATH_BYTES} bytes, the limit for sockets, got {length}"
        yield Fault("control.socket", message)


def _schedules(config: Config) -> Iterator[Fault]:
    """Yield the faults of schedules that can be found without the code of the tasks."""
    for name, given in config.schedules.items():
        at = f"schedules.{name}"
        faults = list(_faults_of_schedule_keys(given)) or list(_faults_of_schedule(name, given))
        yield from (Fault(at if what in ("", "name") else f"{at}.{what}", message) for what, message in faults)
        yield from _faults_of_schedule_queue(config, f"{at}.queue", given.queue)


def _faults_of_schedule_keys(given: ScheduleConfig) -> Iterator[tuple[str, str]]:
    if not given.task:
        yield "task", "is missing: set it to the name of the task to enqueue"
    if given.cron and given.every is not None:
        yield "", "set either cron or every, not both"
    if not given.cron and given.every is None:
        yield "", 'set cron, as in "0 3 * * *", or every, in seconds'
    if given.timezone and not given.cron:
        yield "timezone", "applies only to cron: set cron, or remove this key"


def _faults_of_schedule(name: str, given: ScheduleConfig) -> Iterator[tuple[str, str]]:
    try:
        check_arguments("arguments", given.args, given.kwargs)
    except InvalidArguments as error:
        yield "", str(error)
    try:
        schedule_of(name, given, given.queue or _ANY_QUEUE)
    except BadSchedule as error:
        yield from error.faults


def _faults_of_schedule_queue(config: Config, path: str, queue: str) -> Iterator[Fault]:
    served = served_queues(config)
    if queue and served_as(queue, served) is None and config.unserved_queues == "error":
        yield Fault(path, f'queue "{queue}" is in no tier{suggestion(queue, served) or _ADD_IT}')


# Each rule, with the top-level keys that the rule compares
RULES: tuple[tuple[tuple[str, ...], Rule], ...] = (
    ((), _namespace),
    (("redis_url", "redis_url_file"), _redis_url),
    (("redis_credentials", "redis_url", "redis_url_file"), _redis_credentials),
    (("imports",), _imports),
    (("tiers",), _tiers),
    (("tiers", "queues"), _queues_in_tiers),
    ((), _rates),
    (("conditions",), _conditions),
    (("queues", "conditions"), _conditions_of_queues),
    (("tasks", "limits"), _tasks),
    (("tiers", "schedules"), _schedules),
    (("workers", "pools", "scaling"), _workers),
    (("tiers", "pools"), _pool_queues),
    (("tiers", "pools"), _queues_without_pool),
    (("adopt", "namespace"), _adopt),
    (("adopt", "tiers"), _queues_of_adopted),
    (("lease",), _lease),
    (("restarts",), _restarts),
    (("signing",), _signing),
    (("signing", "adopt"), _adopted_unsigned),
    ((), _listen),
    ((), _access),
    ((), _paths),
)


# The configuration compared with the imported code


def compared_with_code(config: Config, tasks: dict[str, str]) -> tuple[list[Fault], list[Fault]]:
    """Compare a configuration with the tasks that its code defines. Return the faults and the warnings.

    `tasks`: the queue of each task.
    """
    known = [
        Fault(path, f"no imported module defines the task {shown(name)}{suggestion(name, tasks)}")
        for path, name in unknown_tasks(config, tasks)
    ]
    unserved = unserved_queues(config, tasks)
    is_strict = config.unserved_queues == "error"
    if faults := [*(unserved if is_strict else ()), *schedules_without_queue(config, tasks)]:
        return faults, known
    return [], [*known, *unserved, *schedules_of_unknown_tasks(config, tasks)]


def unserved_queues(config: Config, tasks: dict[str, str]) -> list[Fault]:
    """Return a fault for each imported task whose queue is in no tier, because no worker would ever run the task."""
    served = served_queues(config)
    return [
        Fault("tiers", f"no tier serves queue {queue!r} of task {name!r}{suggestion(queue, served) or _ADD_IT}")
        for name, queue in sorted(tasks.items())
        if served_as(queue, served) is None
    ]


def unknown_tasks(config: Config, tasks: dict[str, str]) -> list[tuple[str, str]]:
    """Return the path and the name of each task that the configuration names but no imported module defines."""
    overrides = [(f"tasks.{name}", name) for name in sorted(config.tasks.keys() - tasks.keys())]
    adopted = [(f"adopt.{key}.task", adopt.task) for key, adopt in config.adopt.items() if adopt.task]
    return overrides + [(path, name) for path, name in adopted if name not in tasks]


def schedules_without_queue(config: Config, tasks: Collection[str]) -> list[Fault]:
    """Return a fault for each schedule that sets no queue and whose task no imported module defines. Without these
    tasks, the queues of the schedules are unknown.
    """
    unknown = _of_unknown_tasks(config, tasks)
    return [
        Fault(path, f"{fault}{' If' if fault.endswith('?') else '; if'} another fleet has it, set its queue")
        for path, fault, given in unknown
        if not given.queue
    ]


def schedules_of_unknown_tasks(config: Config, tasks: Collection[str]) -> list[Fault]:
    """Return a fault for each schedule that sets a queue and whose task no imported module defines. Another fleet may
    define the task."""
    return [Fault(path, fault) for path, fault, given in _of_unknown_tasks(config, tasks) if given.queue]


def _of_unknown_tasks(config: Config, tasks: Collection[str]) -> Iterator[tuple[str, str, ScheduleConfig]]:
    for name, given in config.schedules.items():
        if given.task not in tasks:
            fault = f'no imported module defines the task "{given.task}"{suggestion(given.task, tasks)}'
            yield f"schedules.{name}.task", fault, given
