"""The application's client for asyncio: enqueues tasks and asks about them, and never holds up its event loop."""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, Unpack, overload

from rota.client.aio.driver import Connections, in_portions
from rota.client.aio.flow.methods import AsyncFlowing
from rota.client.aio.handles import AsyncHandle
from rota.client.answers import Exchange, value_of
from rota.client.blocking.client import Client
from rota.client.client_warnings import ClientWarnings, known_names
from rota.client.enqueue_options import (
    OnCommit,
    OnCommitOption,
    ProgressOption,
    check_nothing_waits,
    check_on_commit,
    tell_all,
    telling,
)
from rota.client.failures import Uncertain
from rota.client.interception import interception
from rota.client.preparation import KIB, in_sending_order, prepare, prepare_each
from rota.client.sender import Batch, Cut, Sender, Sending, WithId, intercepted
from rota.client.waits import Goal, GroupQuestion, WaitQuestion, has_come, pending_named, question_before
from rota.durations import Duration, TimeLeft, positive_seconds
from rota.errors import RotaError, Unavailable
from rota.protocol.command import Command, Steps
from rota.protocol.groups import Room
from rota.protocol.new_tasks import Enqueued, NewTask
from rota.protocol.store import Store
from rota.protocol.views import TaskState
from rota.protocol.walks import look_back
from rota.server.address import TlsFiles
from rota.server.aio_endpoint import aio_endpoint_of
from rota.server.durability import Durability, confirmation, level_of
from rota.server.endpoint import RedisClient
from rota.tasks import fleet_settings
from rota.tasks.call import Call, CallOptions, call_of, many, why_not_positional
from rota.tasks.options import require_name
from rota.tasks.registry import default_registry

if TYPE_CHECKING:
    from rota.client.aio.consumer import AsyncConsumer
    from rota.client.aio.handles import AsyncChainHandle, AsyncGroupHandle
    from rota.client.aio.schedules import AsyncSchedules
    from rota.tasks.call_flows import CallChain, CallGroup

R = TypeVar("R")
T = TypeVar("T")
H = TypeVar("H", bound=WithId)


_WANTS_BLOCKING: Final = (
    "a consumer works by connections that block: make it with rota.Client(redis=...).consumer(...), or give this "
    "AsyncClient a redis_url"
)


class AsyncClient(AsyncFlowing):
    """One connection to one namespace of one server, for all tasks of one event loop; waits have one more.

    The arguments are those of `Client`; `redis` is a client of asyncio, such as `redis.asyncio.Redis`. It belongs to
    the event loop that uses it first, and to another one only when that was closed. `await aclose()`, or use it as an
    async context manager, when it is not needed any more.
    """

    is_async: Final = True

    def __init__(
        self,
        redis_url: str | None = None,
        namespace: str = fleet_settings.DEFAULT_NAMESPACE,
        *,
        redis: RedisClient | None = None,
        max_payload_kb: int = fleet_settings.DEFAULT_MAX_PAYLOAD_KB,
        timeout_seconds: float = fleet_settings.DEFAULT_TIMEOUT_SECONDS,
        durability: Durability = fleet_settings.DEFAULT_DURABILITY,
        redis_tls_ca: str = "",
        redis_tls_cert: str = "",
        redis_tls_key: str = "",
        on_commit: OnCommit | None = None,
    ) -> None:
        """Connects at the first call. Raises ValueError for a URL or a durability that is none, InvalidName for a
        namespace that is none, or TypeError for an `on_commit` that takes no callback."""
        self.namespace = require_name("namespace", namespace)
        self._url = redis_url
        self._tls_files = TlsFiles(redis_tls_ca, redis_tls_cert, redis_tls_key)
        self._max_payload_kb = max_payload_kb
        self._timeout_seconds = positive_seconds(timeout_seconds, "timeout_seconds")
        self._store = Store(namespace)
        self._endpoint = aio_endpoint_of(redis_url, self._tls_files, redis, self._store.keys.tasks)
        failover = self._endpoint.has_failover
        awaited = confirmation(level_of(durability), failover=failover, timeout_seconds=self._timeout_seconds)
        self._sender = Sender(
            self._enqueue, self._handles, self._doubt, self._timeout_seconds, awaited, repeats="await arepeat()"
        )
        self._warned = ClientWarnings(namespace, self._endpoint.place)
        self._on_commit = None if on_commit is None else check_on_commit(on_commit)
        self._connections: Connections | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections; whoever waits is told so by Unavailable. May be repeated; a later call connects
        anew."""
        there = self._connections
        self.close_soon()
        if there is not None and there.loop is asyncio.get_running_loop():
            await asyncio.sleep(0)  # it closes in this step
            await there.settle()

    def close_soon(self) -> None:
        """Close the connections, from whichever thread."""
        there, self._connections = self._connections, None
        if there is not None and not there.is_over:
            there.loop.call_soon_threadsafe(there.close)

    # Producing

    @overload
    async def enqueue(self, call: Call[R], /, *, on_commit: OnCommitOption = ...) -> AsyncHandle[R]: ...
    @overload
    async def enqueue(self, chain: "CallChain", /, *, on_commit: OnCommitOption = ...) -> "AsyncChainHandle": ...
    @overload
    async def enqueue(self, group: "CallGroup", /, *, on_commit: OnCommitOption = ...) -> "AsyncGroupHandle": ...
    @overload
    async def enqueue(
        self,
        name: str,
        /,
        *,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        on_commit: OnCommitOption = ...,
        **options: Unpack[CallOptions],
    ) -> AsyncHandle[Any]: ...
    async def enqueue(
        self,
        what: "Call[Any] | CallChain | CallGroup | str",
        /,
        *positional: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        on_commit: OnCommitOption = ...,
        **options: Unpack[CallOptions],
    ) -> "AsyncHandle[Any] | AsyncChainHandle | AsyncGroupHandle":
        """Enqueue one call, a chain, a group, or a task by its name: takes and raises what `Client.enqueue` does.

        It is sent before it returns, and so waits for no commit: where `on_commit` does not call back at once, it sends
        nothing and raises RuntimeError.

        Cancelled, it goes on as CancelledError, whose cause is Uncertain when it was sent (`Uncertain.behind` finds it,
        and it can be repeated exactly), and Unavailable when it was not.
        """
        if positional:
            raise TypeError(why_not_positional(what, positional))
        call = call_of(what, args, kwargs, options)
        if call is None:
            return await self._flows.enqueue(what, on_commit)
        return (await self._send([prepare(call, default_registry, self._max_payload_kb)], on_commit))[0]

    async def enqueue_many(
        self, calls: Iterable[Call[R]], *, on_commit: OnCommitOption = ..., progress: ProgressOption = None
    ) -> list[AsyncHandle[R]]:
        """Enqueue many calls as `Client.enqueue_many` does. All are checked before any is sent. Cancelled, and with
        `on_commit`, as `enqueue`: `accepted` of the cause names those taken before."""
        tasks = await in_portions(prepare_each(many(calls), default_registry, self._max_payload_kb))
        there, back = in_sending_order(tasks)
        return back(await self._send(there, on_commit, progress))

    # Consuming

    def consumer(
        self, queue: str, *more: str, limit: int = 1, lease_seconds: Duration = fleet_settings.DEFAULT_LEASE_SECONDS
    ) -> "AsyncConsumer":
        """Take tasks of these queues with `async with` and `async for`: see `AsyncConsumer` and `Client.consumer`. It
        is registered when it is entered. Raises InvalidName, TypeError or ValueError."""
        from rota.client.aio.consumer import AsyncConsumer, terms_of  # noqa: PLC0415 - as in Client

        terms = terms_of((queue, *more), limit, lease_seconds, self._max_payload_kb * KIB)
        if self._url is None:
            raise TypeError(_WANTS_BLOCKING)
        blocking = Client(
            self._url,
            self.namespace,
            max_payload_kb=self._max_payload_kb,
            timeout_seconds=self._timeout_seconds,
            redis_tls_ca=self._tls_files.ca,
            redis_tls_cert=self._tls_files.cert,
            redis_tls_key=self._tls_files.key,
        )
        return AsyncConsumer(blocking, terms)

    @property
    def schedules(self) -> "AsyncSchedules":
        """What is enqueued periodically, to be looked at and steered: see `AsyncSchedules`."""
        from rota.client.aio.schedules import AsyncSchedules  # noqa: PLC0415 - as in Client
        from rota.client.schedules import ScheduleSteps  # noqa: PLC0415 - as in Client

        return AsyncSchedules(self, self._follow, ScheduleSteps(self.namespace, self._max_payload_kb))

    # Waiting

    async def _await(self, goal: Goal, task_id: str, timeout: Duration | None) -> TaskState:
        question = WaitQuestion(goal, require_name("id", task_id))
        if (interceptor := interception.interceptor) is not None:
            return interceptor.wait(self.namespace, question)
        left, within = TimeLeft(timeout), timeout
        while True:
            found = await self._here().waiting.wait(question, within)
            assert isinstance(found, TaskState), "it is asked about a task"
            found = await self._follow(look_back(self._store, task_id, found))
            if has_come(question, found):
                return found
            if found.follows:
                with pending_named(question, found, timeout):
                    await self._here().waiting.wait(question_before(found), left.seconds())
            within = left.seconds()

    async def _await_group(self, question: GroupQuestion, timeout: Duration | None) -> Room:
        if (interceptor := interception.interceptor) is not None:
            return interceptor.wait_for_group(self.namespace, question)
        found = await self._here().waiting.wait(question, timeout)
        assert isinstance(found, Room), "it is asked about a group"
        return found

    # Talking to the server

    def _here(self) -> Connections:
        there = self._connections
        if there is None or there.is_over:
            there = self._connections = Connections(self._endpoint, self._timeout_seconds, self._store)
        elif there.loop is not asyncio.get_running_loop():
            raise RuntimeError("this AsyncClient is in use in another event loop: make one for each loop")
        return there

    async def _send(
        self, tasks: Sequence[NewTask], on_commit: OnCommitOption, progress: ProgressOption = None
    ) -> list[AsyncHandle[Any]]:
        self._check_nothing_waits(on_commit)
        if (interceptor := interception.interceptor) is not None:
            words = interceptor.enqueue(self.namespace, tasks)
            tell_all(progress, len(tasks))
            return self._handles(tasks, words)
        if progress is None:
            return await self._sent(await self._drive(self._sender.send(tasks)))
        with telling(progress, len(tasks)) as tell:
            return await self._sent(await self._drive(self._sender.send(tasks, tell)))

    async def _send_flow(self, sending: Sending[H]) -> list[H]:
        if (interceptor := interception.interceptor) is not None:
            return intercepted(interceptor, self.namespace, sending)
        return await self._sent(await self._drive(sending))

    async def _sent(self, handles: list[H]) -> list[H]:
        """As of Client."""
        if names := self._warned.names_to_check():
            with suppress(RotaError):
                known = await self._follow(known_names(self._store))
                self._warned.of_names(names, known)
        return handles

    def _check_nothing_waits(self, on_commit: OnCommitOption) -> None:
        if on_commit is ...:
            on_commit = self._on_commit
        if on_commit is not None:
            check_nothing_waits(on_commit)

    async def _drive(self, sending: Sending[H]) -> list[H]:
        here = self._here()
        try:
            exchange = next(sending)
            while True:
                pool, line = here.pool if exchange.confirmation is None else here.confirming, None
                try:
                    line = await pool.ready(exchange)
                    answers = await pool.exchange(line, exchange)  # sends by its first step
                except Unavailable as error:
                    exchange = sending.throw(error)
                except asyncio.CancelledError as cancelled:
                    raise cancelled from _cut(sending, is_sent=line is not None)
                else:
                    exchange = sending.send(answers)
        except StopIteration as end:
            handles: list[H] = end.value
            return handles

    def _doubt(self, why: str, ids: Sequence[str], again: Callable[[], Sending[AsyncHandle[Any]]]) -> Uncertain:
        return Uncertain(why, ids, aagain=lambda: self._drive(again()))

    async def _follow(self, steps: Steps[T], /) -> T:
        deadline = time.monotonic() + self._timeout_seconds
        answer: Any = None
        try:
            while True:
                answer = await self._run(steps.send(answer), (), deadline)
        except StopIteration as end:
            value: T = end.value
            return value

    async def _run(self, command: Command[T], ids: Sequence[str] = (), deadline: float | None = None) -> T:
        """Send a command, once: without a nonce a second time would be a second call.

        Raises Unavailable, or Uncertain when no answer came.
        """
        if (interceptor := interception.interceptor) is not None:
            return interceptor.run(self.namespace, command)
        until = time.monotonic() + self._timeout_seconds if deadline is None else deadline
        exchange = Exchange([command], None, until)
        pool = self._here().pool
        line = await pool.ready(exchange)
        try:
            [answer] = await pool.exchange(line, exchange)
        except asyncio.CancelledError as cancelled:
            raise cancelled from Uncertain("the await was cancelled; it may have been carried out", ids)
        return value_of(answer, ids)

    def _enqueue(self, batch: Batch[NewTask]) -> Command[list[Enqueued]]:
        return self._store.enqueue(batch.nonce, batch.items)

    def _handles(self, tasks: Sequence[NewTask], words: Sequence[Enqueued]) -> list[AsyncHandle[Any]]:
        for task, word in zip(tasks, words, strict=True):
            self._warned.note(task)
            if word.unserved or word.unseen:
                self._warned.of_answer(task, word)
        return [
            AsyncHandle(word.holder or task.id, word.duplicate, self) for task, word in zip(tasks, words, strict=True)
        ]


def _cut(sending: Sending[Any], *, is_sent: bool) -> Unavailable | Uncertain | None:
    """What an enqueue raises for which nobody waits any more."""
    try:
        sending.throw(Cut(is_sent=is_sent))
    except (Unavailable, Uncertain) as cause:
        return cause
    return None
