"""A hundred mistakes, the first part: mistakes in code, and the messages about them.

Each row has the code, the type of the error, and words that the message must contain. These words state what is wrong
and what to write instead. `resize` is a task with `image_id` and `size`, and `client` is a client of a server that does
not run. If an import fails, or if arguments do not match the task's parameters, the traceback shows only the user's
code and no line of Rota.
"""

import traceback
from pathlib import Path
from typing import Any

import pytest

import rota
from rota.client import default_clients
from rota.protocol.outcome import traceback_text
from rota.tasks.registry import default_registry

SHOP = """
import rota
from datetime import UTC, datetime
@rota.task
def resize(image_id: int, size: str = "s"): ...
@rota.task(unique=True)
def once(): ...
client = rota.Client("redis://127.0.0.1:1/0")
async_client = rota.AsyncClient("redis://127.0.0.1:1/0")
"""
Row = tuple[Any, ...]

DECLARED: list[Row] = [
    # Options of other libraries
    ("@rota.task(max_retries=3)", TypeError, "no option 'max_retries'", "use retries="),
    ("@rota.task(bind=True)", TypeError, "'bind'", "rota.current_task()", "rota.Retry"),
    ("@rota.task(priority=9)", TypeError, "'priority'", "tiers", "queue="),
    ("@rota.task(countdown=60)", TypeError, "'countdown'", ".enqueue_in(60, ...)"),
    ("@rota.task(eta=None)", TypeError, "'eta'", ".enqueue_at(when, ...)"),
    ("@rota.task(delay=60)", TypeError, "'delay'", ".using(delay=60)"),
    ("@rota.task(acks_late=True)", TypeError, "'acks_late'", "leave the option out"),
    ("@rota.task(autoretry_for=(OSError,))", TypeError, "'autoretry_for'", "retry_on="),
    ("@rota.task(default_retry_delay=5)", TypeError, "'default_retry_delay'", "base="),
    ("@rota.task(max_backoff=5000)", TypeError, "'max_backoff'", "max_delay=", "seconds"),
    ("@rota.task(throws=(KeyError,))", TypeError, "'throws'", "dead_on="),
    ("@rota.task(rate_limit='10/m')", TypeError, "'rate_limit'", 'rate="10/m"'),
    ("@rota.task(queue_name='mail')", TypeError, "'queue_name'", "queue="),
    ("@rota.task(job_timeout=30)", TypeError, "'job_timeout'", "time_limit="),
    ("@rota.task(ignore_result=True)", TypeError, "'ignore_result'", "result_ttl="),
    ("@rota.task(max_age=60)", TypeError, "'max_age'", "expires=", "seconds"),
    ("@rota.task(concurrency=2)", TypeError, "'concurrency'", "cap", "rota.toml"),
    ("@rota.task(crontab='0 3 * * *')", TypeError, "'crontab'", 'cron="0 3 * * *"'),
    ("@rota.task(on_failure=print)", TypeError, "'on_failure'", "@rota.on_dead"),
    # Misspelt options, and options with invalid values
    ("@rota.task(retires=3)", TypeError, "'retires'", "did you mean 'retries'?", "its options are name, queue"),
    ("@rota.task('resize')", TypeError, "takes the name of the task", "@rota.task(name='resize')"),
    ("@rota.task(name=5)", TypeError, "name of a task", "got 5"),
    ("@rota.task(name='send mail')", rota.InvalidName, "'send mail'", "characters", "tasks.py:1"),
    ("@rota.task(queue='tenant-*')", rota.InvalidName, "'tenant-*'", "pattern", "a single queue"),
    ("@rota.task(queue='mail-delayed')", rota.InvalidName, "may not end in '-delayed'"),
    ("@rota.task(retries='3')", TypeError, "retries must be a whole number", "got '3'"),
    ("@rota.task(retries=-1)", ValueError, "retries must be 0 or more", "got -1"),
    ("@rota.task(time_limit='30s')", TypeError, "time_limit must be seconds or a timedelta", "'30s'"),
    ("@rota.task(time_limit=0)", ValueError, "time_limit must be more than 0 seconds"),
    ("@rota.task(soft_time_limit=30, time_limit=10)", ValueError, "soft_time_limit (30 s)", "time_limit (10 s)"),
    ("@rota.task(backoff='expo')", ValueError, "backoff", '"exponential"', "got 'expo'"),
    ("@rota.task(base=dict)", TypeError, "base must be seconds", "dict"),
    ("@rota.task(retry_on='OSError')", TypeError, "retry_on must be an exception class or a tuple", "'OSError'"),
    ("@rota.task(dead_on=[ValueError])", TypeError, "or a tuple of them, got a list: use dead_on=(ValueError,)"),
    ("@rota.task(retry_on=[OSError, KeyError])", TypeError, "use retry_on=(OSError, KeyError)"),
    ("@rota.task(unique='yes')", TypeError, "unique must be True, False or a callable"),
    ("@rota.task(unique_for=60)", ValueError, "unique_for", "unique=True"),
    ("@rota.task(rate=5)", TypeError, "rate", '"10/s"', "got 5"),
    ("@rota.task(rate='5 per minute')", ValueError, "rate", '"100/m"', "5 per minute"),
    ("@rota.task(rate_key='{user}')", ValueError, "rate_key", 'rate="10/s"'),
    ("@rota.task(rate_key='user', rate='10/s')", ValueError, 'in braces, as in rate_key="{user}"', "got 'user'"),
    # Schedules
    (
        "@rota.task(every=5)\ndef f(shop): ...",
        rota.InvalidArguments,
        "'shop'",
        "schedules=[rota.Every(..., args=[...])]",
    ),
    ("@rota.task(cron='0 3 * *')", ValueError, "it has 4 fields", "minute, hour, day of the month"),
    ("@rota.task(cron='0 25 * * *')", ValueError, '"25" at character 3 is not a valid hour'),
    ("@rota.task(cron='0 3 * * *', timezone='Europe/Zuerich')", ValueError, "Europe/Zuerich", "'Europe/Zurich'?"),
    ("@rota.task(timezone='UTC')", ValueError, "timezone", "has no effect without cron"),
    ("@rota.task(every='30s')", TypeError, "every must be seconds", "'30s'"),
    ("@rota.task(every=0.2)", ValueError, "1 second to 100 years", "0.2"),
    ("@rota.task(schedules=['* * * * *'])", TypeError, "[rota.Cron(...), rota.Every(...)]", "'* * * * *'"),
    # Objects that cannot be tasks
    ("rota.task(lambda: None)", TypeError, "<lambda> (tasks.py:1)", "define the function with def"),
    ("@rota.task\nclass Resize: ...", TypeError, "Resize is a class", "a function that creates the object"),
    ("@rota.task\ndef rows(): yield 1", TypeError, "rows is a generator", "return instead of yield"),
    ("@rota.task()\n@property\ndef f(self): ...", TypeError, "property", "declare a function"),
    ("@rota.task\n@rota.task\ndef f(): ...", TypeError, "takes a function", "rota task f"),
    ("@rota.task(name='resize')\ndef f(): ...", rota.DuplicateTask, "'resize'", "shop.tasks.f (tasks.py:1)", "name="),
    (
        "@rota.task\ndef twice(): return 1\n\n@rota.task\ndef twice(): return 2",
        *(rota.DuplicateTask, "two tasks are named 'twice'", "(tasks.py:1)", "(tasks.py:4)", "name="),
    ),
]

HOOKS: list[Row] = [
    ("@rota.on_worker_start\ndef connect(worker): ...", TypeError, "called as connect()", "(worker)"),
    ("@rota.on_worker_start\nasync def connect(): ...", TypeError, "a plain function", "coroutine"),
    ("@rota.around_task\ndef timed(task): ...", TypeError, "generator function that yields once"),
    ("@rota.around_task\ndef timed(): yield", TypeError, "called as timed(task)"),
    ("@rota.on_dead\ndef tell(task): ...", TypeError, "called as tell(task, reason)"),
]

NESTED: list[Row] = [
    (
        "class Mailer:\n    @rota.task\n    def send(self, to): ...",
        TypeError,
        "Mailer.send (tasks.py:2) is a method",
        "pass it the id of the object",
    ),
    ("class Mailer:\n    @rota.task\n    @classmethod\n    def send(cls): ...", TypeError, "classmethod", "object"),
    (
        "def view():\n    @rota.task\n    def work(): ...\nview()",
        TypeError,
        "view.<locals>.work",
        "top level of its module",
    ),
]

ENQUEUED: list[Row] = [
    ("resize.enqueue()", rota.InvalidArguments, "resize(image_id: int", "missing", "'image_id'"),
    ("resize.enqueue(7, 's', 3)", rota.InvalidArguments, "resize(image_id: int", "too many positional"),
    ("resize.enqueue(7, colour='red')", rota.InvalidArguments, "unexpected keyword argument 'colour'"),
    ("resize.enqueue(7, queue='bulk')", rota.InvalidArguments, "'queue'", "resize.using(queue=...).enqueue(...)"),
    ("resize.enqueue({1: 2})", rota.InvalidArguments, "resize:", "key 1", "not str"),
    ("resize.enqueue(float('nan'))", rota.InvalidArguments, "resize:", "nan", "finite"),
    ("resize.enqueue(7, size=object())", rota.InvalidArguments, "size is of type object", "JSON"),
    ("resize.enqueue('x' * 300_000)", rota.PayloadTooLarge, "resize", "256 KiB", "max_payload_kb", "reference"),
    ("resize.using(id='a b').enqueue(7)", rota.InvalidName, "id 'a b'", "characters"),
    ("resize.using(queue=5).enqueue(7)", rota.InvalidName, "queue must be a string", "got 5"),
    (
        "resize.enqueue(7)",
        rota.Unavailable,
        "redis://127.0.0.1:1/0 is not reachable: Connection refused",
        "start the server",
    ),
]

CALLED: list[Row] = [
    # Methods of other libraries
    ("resize.delay(7)", AttributeError, "'delay'", "use .enqueue(...)"),
    ("resize.send(7)", AttributeError, "'send'", "use .enqueue(...)"),
    ("resize.perform_async(7)", AttributeError, "'perform_async'", "use .enqueue(...)"),
    ("resize.apply_async([7])", AttributeError, "'apply_async'", "use .using(delay=60).enqueue(...)"),
    ("resize.send_with_options(args=[7])", AttributeError, "'send_with_options'", ".using("),
    ("resize.perform_in(60, 7)", AttributeError, "'perform_in'", ".enqueue_in(60, ...)"),
    ("resize.s(7)", AttributeError, "'s'", "use .call(...)"),
    ("resize.si(7)", AttributeError, "'si'", "use .call(...)"),
    ("resize.map([7])", AttributeError, "'map'", "rota.map(resize, items)", "rota.enqueue_many("),
    ("resize.enqueue_many([1, 2])", AttributeError, "'enqueue_many'", "rota.enqueue_many(resize.call(n) for n in"),
    ("resize.retry()", AttributeError, "'retry'", "rota.Retry"),
    ("resize.AsyncResult('id')", AttributeError, "'AsyncResult'", "rota.status(id)"),
    ("resize.using(queue='bulk').enqueue_in(60, 7)", AttributeError, "'enqueue_in'", ".using(delay=60"),
    ("rota.Handle('id', False, client).get()", AttributeError, "'get'", ".result(timeout=5)"),
    ("rota.Handle('id', False, client).ready()", AttributeError, "'ready'", ".status().state"),
    ("rota.Handle('id', False, client).revoke()", AttributeError, "'revoke'", ".cancel()"),
    ("client.send_task('resize')", AttributeError, "'send_task'", '.enqueue("resize", args=[7]'),
    ("rota.enqueue(resize, 7)", AttributeError, "'enqueue'", "resize.enqueue(7)"),
    ("rota.Celery('shop')", AttributeError, "'Celery'", "rota.configure(redis_url=...)"),
    ("rota.AsyncResult('id')", AttributeError, "'AsyncResult'", "rota.status(id)"),
    ("rota.shared_task(print)", AttributeError, "'shared_task'", "@rota.task"),
    ("rota.chord([resize.call(7)])", AttributeError, "'chord'", "use rota.group([...], then="),
    ("rota.Worker()", AttributeError, "'Worker'", "`rota run`"),
    ("rota.crontab(minute=5)", AttributeError, "'crontab'", "rota.Cron("),
    # Options of one call
    ("resize.using(countdown=60)", TypeError, "using() has no option 'countdown'", "delay="),
    ("resize.using(eta=None)", TypeError, "'eta'", "at=", "aware"),
    ("resize.using(priority=3)", TypeError, "'priority'", "tiers", "front=True"),
    ("resize.using(remember=False)", TypeError, "'remember'", "where the task is declared"),
    ("resize.using(time_limit=5)", TypeError, "'time_limit'", "where the task is declared"),
    ("resize.using(task_id='x')", TypeError, "'task_id'", "id="),
    ("resize.using(args=[7])", TypeError, "'args'", ".enqueue(7)"),
    ("resize.using(dealy=60)", TypeError, "'dealy'", "did you mean 'delay'?"),
    ("resize.using(client='redis://localhost')", TypeError, "client must be a rota.Client"),
    (
        "resize.using(client=async_client).enqueue(7)",
        TypeError,
        "an AsyncClient",
        "await task.using(client=...).aenqueue",
    ),
    ("resize.using(delay=-5).enqueue(7)", ValueError, "resize: delay must be 0 seconds or more", "-5"),
    ("resize.enqueue_in(-5, 7)", ValueError, "delay must be 0 seconds or more", "-5"),
    (
        "resize.enqueue_in(None, 7)",
        TypeError,
        "must be a number of seconds or a timedelta, got None",
        "use resize.enqueue(...)",
    ),
    ("resize.enqueue_at(None, 7)", TypeError, "at must be a datetime, got None", "use resize.enqueue(...)"),
    ("rota.Retry(delay=-1)", ValueError, "the delay of rota.Retry must be 0 seconds or more, got -1"),
    ("rota.Retry('soon')", TypeError, "the delay of rota.Retry must be seconds or a timedelta, got 'soon'"),
    ("resize.enqueue_in('60', 7)", TypeError, "delay must be seconds or a timedelta", "'60'"),
    (
        "resize.enqueue_in(1_700_000_000, 7)",
        ValueError,
        "more than ten years ahead",
        "milliseconds instead of seconds?",
    ),
    ("resize.enqueue_at(datetime(2030, 1, 1), 7)", ValueError, "no time zone", "datetime.now(timezone.utc)"),
    ("resize.enqueue_at(1_700_000_000, 7)", TypeError, "at must be a datetime"),
    ("resize.using(delay=1, at=datetime.now(UTC)).enqueue(7)", ValueError, "delay or at, not both"),
    ("resize.using(front='yes').enqueue(7)", TypeError, "front must be True or False"),
    ("rota.Client('redis://h', max_payload_kb='64')", TypeError, "max_payload_kb must be a whole number, got '64'"),
    ("rota.AsyncClient('redis://h', max_payload_kb=0)", ValueError, "max_payload_kb must be 1 or more, got 0"),
    ("rota.configure(max_payload_kb=0.5)", TypeError, "max_payload_kb must be a whole number, got 0.5"),
    # Objects that are not calls
    ("client.enqueue(resize, 7)", TypeError, "one call", ".enqueue(resize.call(7))", "resize.enqueue(7)"),
    ("client.enqueue(resize)", TypeError, "a task, not a call", "resize.call(...)"),
    ("client.enqueue(resize, args=[7])", TypeError, "a task, not a call", "resize.call(...)"),
    ("client.enqueue(resize.enqueue)", TypeError, "use resize.call(...), not resize.enqueue"),
    ("client.enqueue(resize(7))", TypeError, "None is not a call", "resize.call(7)"),
    ("client.enqueue(print)", TypeError, "function print is not a task", "@rota.task"),
    ("client.enqueue('resize', 7)", TypeError, "args=[7]"),
    ("client.enqueue('resise', args=[7])", rota.InvalidName, "resise", "did you mean 'resize'?", "queue="),
    ("client.enqueue('x', args='abc', queue='q')", rota.InvalidArguments, "x: args must be a list", "str"),
    ("client.enqueue('x', queue='q', priority=3)", TypeError, "enqueue() has no option 'priority'", "tiers"),
    ("client.enqueue(resize.call(7), delay=5)", TypeError, "a Call already has its arguments and options"),
    ("rota.Client('redis://h').enqueue_many([resize])", TypeError, "is a task, not a call", "resize.call(...)"),
    ("client.enqueue_many(['resize'])", TypeError, "'resize'", "rota.Call("),
    ("client.enqueue_many([(resize, 7)])", TypeError, "resize.call(7)"),
    ("client.enqueue_many(resize.call(7))", TypeError, "many calls", "[resize.call(7), "),
    ("client.enqueue_many([resize.using(delay=5)])", TypeError, "is a task, not a call", ".call(...)"),
    (
        "client.enqueue_many([rota.chain(resize.call(7))])",
        TypeError,
        "calls[0]",
        "enqueue each chain or group with its own",
    ),
    # Chains and groups
    ("rota.chain()", ValueError, "at least one call", "rota.chain(resize.call(7), "),
    ("rota.chain(resize, resize.call(7))", TypeError, "calls[0]: resize is a task, not a call", "resize.call(...)"),
    ("rota.chain(resize.call(7), print)", TypeError, "calls[1]: the function print is not a task", "@rota.task"),
    ("rota.chain([resize.call(7)])", TypeError, "calls[0]", "as separate arguments: use rota.chain(*calls)"),
    ("rota.chain(rota.chain(resize.call(7)))", TypeError, "calls[0]", "use rota.chain(*first.calls, ...)"),
    ("rota.chain(rota.group([]))", TypeError, "cannot be part of a chain", "rota.group([...], then=rota.chain(...))"),
    (
        "c = resize.using(unique=True).call(7); rota.chain(c, c)",
        ValueError,
        "cannot be unique",
    ),
    (
        "rota.group([], then=resize.using(unique=True).call(7))",
        ValueError,
        "then: a call that follows",
        "its key",
    ),
    ("rota.group([], on_dead=once.call())", ValueError, "on_dead: once is declared unique", "once.using(unique=False)"),
    ("rota.group(resize.call(7))", TypeError, "many calls", "[resize.call(7), "),
    ("rota.group([resize.call(7), resize])", TypeError, "members[1]: resize is a task, not a call"),
    ("rota.group([resize.enqueue])", TypeError, "members[0]: use resize.call(...), not resize.enqueue"),
    ("rota.group([rota.group([])])", TypeError, "members[0]: a group cannot be a member of another"),
    ("rota.group([], then=resize)", TypeError, "then: resize is a task, not a call"),
    ("rota.group([], id='a b')", rota.InvalidName, "id 'a b'", "characters"),
    ("rota.group([resize.call()]).enqueue()", rota.InvalidArguments, "members[0]: ", "'image_id'"),
    ("rota.group([], then=resize.call()).enqueue()", rota.InvalidArguments, "then: ", "'image_id'"),
    ("rota.chain(resize.call(7), resize.call()).enqueue()", rota.InvalidArguments, "calls[1]: ", "'image_id'"),
    ("rota.chain(resize.call(7)).delay()", AttributeError, "'delay'", "use .enqueue()"),
    ("rota.group([]).enqueue(client=async_client)", TypeError, "an AsyncClient", "await ... .aenqueue(client=...)"),
    ("client.group('a b')", rota.InvalidName, "id 'a b'"),
    ("rota.group([]).wait()", AttributeError, "'wait'", "use .enqueue(), which returns a handle with this attribute"),
    ("rota.map(print, [7])", TypeError, "rota.map: print is not a task: declare it with @rota.task"),
    ("rota.map('resize', [7])", TypeError, "takes a declared task, for example rota.map(resize, items), got 'resize'"),
    (
        "rota.map(resize.call(7), [7])",
        TypeError,
        "the task itself and creates the calls, for example rota.map(resize, items)",
        "rota.map(resize.using(",
    ),
    (
        "rota.map(resize.enqueue, [7])",
        TypeError,
        "the task itself and creates the calls, for example rota.map(resize, items)",
        "items) to set options",
    ),
    ("rota.map(resize, 7)", TypeError, "a task and its items", "got 7"),
    ("rota.map(resize, [7], chunksize=5)", TypeError, "'chunksize'", "use chunk="),
    ("rota.map(resize, [7], chunk=501)", ValueError, "chunk must be from 1 to 500, got 501"),
    ("rota.map(resize, [7], chunk='5')", TypeError, "chunk must be a whole number, got '5'"),
    ("rota.map(resize, [7], max_waiting=9)", ValueError, "max_waiting (9)", "at least chunk (100)"),
    ("rota.map(resize, [7], progress='bar')", TypeError, "progress must be True, or a callable", "'bar'"),
    ("client.schedules.put('n', resize, '0 3 * * *')", TypeError, "rota.Cron(...)", "'0 3 * * *'"),
    ("client.schedules.put('n', resize.call(7), rota.Every(60))", TypeError, "args=[7]"),
    ("rota.Cron(5)", TypeError, "expression must be a string", "0 3 * * *"),
    ("client.enqueue_many([resize.call(7), resize.call()])", rota.InvalidArguments, "calls[1]: ", "'image_id'"),
    ("client.enqueue_many([resize.call(7), None])", TypeError, "calls[1]: None is not a call"),
    ("resize.enqueue(7, countdown=5)", rota.InvalidArguments, "resize.using(...)", "use delay="),
    ("rota.Cron(minute=5)", TypeError, "'minute'", 'rota.Cron("5 0 * * *")'),
    ("rota.Cron('0 3 * * *', 'UTC')", TypeError, "rota.Cron takes one positional argument", "timezone="),
    ("rota.Cron('0 3 * * *', tz='UTC')", TypeError, "'tz'", "use timezone="),
    ("rota.Every(minutes=5)", TypeError, "'minutes'", "rota.Every(timedelta(minutes=5))"),
    ("rota.Every(60, jiter=5)", TypeError, "'jiter'", "did you mean 'jitter'?"),
    ("rota.signals.task_failure", AttributeError, "'signals'", "@rota.on_worker_start"),
    ("rota.conf.update(x=5)", AttributeError, "'conf'", "rota.configure("),
    # Queries, and the choice of the server
    ("rota.configure('redis://:secret@localhost')", TypeError, "keyword arguments", "redis_url="),
    ("rota.configure(broker_url='redis://h')", TypeError, "'broker_url'", "use redis_url="),
    ("rota.configure(timeout=5)", TypeError, "'timeout'", "use timeout_seconds="),
    ("client.get('id')", AttributeError, "'get'", "use .result(id)"),
    ("client.cancel(5)", rota.InvalidName, "id must be a string", "got 5"),
    ("client.cancel('x', kill_after=-1)", ValueError, "kill_after must be more than 0 seconds"),
    (
        "client.peek('q', 'pending')",
        ValueError,
        'state must be "ready", "scheduled", "running" or "dead", got ',
        "'pending'",
    ),
    ("client.consumer('q', limit=0)", ValueError, "limit must be from 1 to 500"),
    ("rota.current_task()", rota.NoCurrentTask, "no task runs here"),
    ("rota.Client('localhost:6379')", ValueError, "begins with redis://"),
    ("rota.Client('redis://h:port')", ValueError, "the port must be a number from 1 to 65535"),
    ("rota.Client(client)", TypeError, "must be a URL", "redis://localhost:6379/0", "got Client"),
    ("rota.Client('redis://h', durability='fsync')", ValueError, '"waitaof"', "'fsync'"),
    ("rota.Client('redis://h', 'my shop')", rota.InvalidName, "namespace 'my shop'"),
]


@pytest.fixture(autouse=True)
def _unreachable_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(default_registry, "_tasks", {})
    monkeypatch.setattr(default_clients, "_default", default_clients.DefaultClient())
    rota.configure(redis_url="redis://127.0.0.1:1/0")


def raised_by(written: str, error: type[Exception], words: tuple[str, ...]) -> list[str]:
    """Return the text of the error that the action raises, and the files in its traceback."""
    shop: dict[str, Any] = {"__name__": "shop.tasks"}
    exec(SHOP, shop)
    with pytest.raises(error) as caught:
        exec(compile(written, "tasks.py", "exec"), shop)
    message = str(caught.value)
    assert all(word in message for word in words), message
    return [Path(frame.filename).name for frame in traceback.extract_tb(caught.value.__traceback__)]


def titled(row: Row) -> str:
    return str(row[0]).replace("\n", " ")


@pytest.mark.parametrize("row", DECLARED, ids=titled)
def test_an_error_in_a_declaration_is_raised_in_the_users_file(row: Row) -> None:
    written, error, *words = row
    ends = "\ndef f(user=1): ..." if "\n" not in written and written.startswith("@") else ""
    shown = raised_by(written + ends, error, tuple(words))
    assert shown[-1] == "tasks.py", shown


@pytest.mark.parametrize("row", NESTED, ids=titled)
def test_a_function_that_no_worker_could_call_is_refused(row: Row) -> None:
    written, error, *words = row
    assert raised_by(written, error, tuple(words))[-1] == "tasks.py"


@pytest.mark.parametrize("row", ENQUEUED, ids=titled)
def test_an_invalid_enqueue_raises_an_error_in_the_callers_file(row: Row) -> None:
    written, error, *words = row
    assert raised_by(written, error, tuple(words))[-1] == "tasks.py"


@pytest.mark.parametrize("row", [*HOOKS, *CALLED], ids=titled)
def test_the_error_for_a_wrong_call_states_the_correction(row: Row) -> None:
    written, error, *words = row
    raised_by(written, error, tuple(words))


def test_the_traceback_of_a_dead_task_starts_in_its_own_code() -> None:
    shop: dict[str, Any] = {"__name__": "shop.tasks"}
    exec(compile("import rota\n@rota.task\ndef fail(): raise OSError('why')", "tasks.py", "exec"), shop)
    with pytest.raises(OSError, match="why") as caught:
        shop["fail"]()
    trace = caught.value.__traceback__
    assert trace is not None
    inside = caught.value.with_traceback(trace.tb_next)  # only the frames that a worker shows
    told = traceback_text(inside).splitlines()
    assert told[1:] == ['  File "tasks.py", line 3, in fail', "OSError: why"]


def test_dir_of_a_task_omits_attribute_names_of_other_libraries() -> None:
    @rota.task(name="shown")
    def shown() -> None: ...

    assert not hasattr(shown, "delay")
    assert {"enqueue", "delay"}.intersection(dir(shown)) == {"enqueue"}


def test_the_table_contains_at_least_a_hundred_mistakes() -> None:
    assert len([*DECLARED, *NESTED, *HOOKS, *ENQUEUED, *CALLED]) >= 100
