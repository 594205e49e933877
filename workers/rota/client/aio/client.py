"""The application's client: enqueues tasks and asks about them."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from rota.client.aio.driver import REPEATS, AsyncDriver, AsyncLifecycle, in_portions, once_committed
from rota.client.aio.event_stream import AsyncTaskEvents
from rota.client.aio.handles import AsyncHandle
from rota.client.enqueue_options import (
    OnCommit,
    OnCommitOption,
    ProgressOption,
    check_on_commit,
    interception,
    tell_all,
    telling,
)
from rota.client.inquiries import cancelling, explaining, looking_at, peeking, result_of, unknown_for, wanted_events
from rota.client.preparation import Checks, in_sending_order, prepare, prepare_each
from rota.client.queues import DEFAULT_LIMIT, QueueCounts, QueuedTask, find_queues
from rota.client.sender import Batch, Sender
from rota.client.status import TaskStatus, status_of
from rota.client.waits import Goal, WaitQuestion, has_come, pending_named, question_before
from rota.durations import Duration, TimeLeft, positive_seconds
from rota.errors import RotaError
from rota.foreign_names import KnowsForeignNames
from rota.protocol.command import Command
from rota.protocol.new_tasks import Enqueued, NewTask
from rota.protocol.replies import CancelWord
from rota.protocol.store import BATCH
from rota.protocol.task_states import State
from rota.protocol.turns import DEFAULT_CLAIMS
from rota.protocol.views import TaskState
from rota.protocol.walks import look_back
from rota.server.address import ServerAccess, TlsFiles
from rota.server.endpoint import RedisClient
from rota.server.logins import CredentialProvider, logins_of
from rota.server.session import Durability, confirmation, level_of
from rota.tasks import fleet_settings
from rota.tasks.call import Call, CallOptions, MakesCalls, call_of, many, why_not_positional
from rota.tasks.options import check_queue, require_name
from rota.tasks.registry import default_registry

if TYPE_CHECKING:
    from rota.client.aio.consumer import AsyncConsumer
    from rota.client.aio.flows import AsyncFlows
    from rota.client.aio.handles import AsyncChainHandle, AsyncGroupHandle
    from rota.client.aio.schedules import AsyncSchedules
    from rota.client.explanation import Explanation
    from rota.client.flow_sending import MapOptions
    from rota.tasks.call import CallChain, CallGroup

R = TypeVar("R")


class AsyncClient(AsyncLifecycle, KnowsForeignNames, place="client"):
    """One connection to one namespace of one server, for all tasks of one event loop; waits have one more.

    The arguments are those of `Client`; `redis` is a client of asyncio, such as `redis.asyncio.Redis`. It belongs to
    the event loop that uses it first, and to another one only when that was closed. `await aclose()`, or use it as an
    async context manager, when it is not needed any more.
    """

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
        redis_credentials: CredentialProvider | None = None,
        on_commit: OnCommit | None = None,
    ) -> None:
        """Connects at the first call. Raises ValueError for a URL or a durability that is not valid, InvalidName for a
        namespace that is not, TypeError for an `on_commit` that takes no callback, a `redis` that cannot be used, or
        both `redis` and `redis_url`."""
        self.namespace = require_name("namespace", namespace)
        self._max_payload_kb = max_payload_kb
        seconds = positive_seconds(timeout_seconds, "timeout_seconds")
        files = TlsFiles(redis_tls_ca, redis_tls_cert, redis_tls_key)
        access = ServerAccess(files, logins_of(redis_credentials))
        self._driver = AsyncDriver(redis_url, access, redis, namespace, seconds)
        failover = self._driver.endpoint.has_failover
        confirmed = confirmation(level_of(durability), failover=failover, timeout_seconds=seconds)
        self._sender = Sender(self._command, self._handles, self._driver.doubt, seconds, confirmed, repeats=REPEATS)
        self._on_commit = None if on_commit is None else check_on_commit(on_commit)

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
        """Enqueue one call, a chain or a group; or a task by its name: `queue` is required for one not declared in this
        process.

        Raises InvalidArguments, InvalidName or PayloadTooLarge before anything is sent; Unavailable or
        ServerFull when it was not accepted; Uncertain, which can repeat it exactly, when that is not known, or when
        it was accepted and its durability was not confirmed.

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
        """Enqueue many calls, in order, some hundreds a round trip. All are checked before any is sent.

        Those with `front=True` go behind the others, last one first, so that they stand in order at the head of a lane.
        `progress` is given how many were accepted, and of how many, after each 4,000; True draws a bar.

        Raises as `enqueue`; `accepted` of Unavailable and Uncertain names those taken before.
        """
        tasks = await in_portions(prepare_each(many(calls), default_registry, self._max_payload_kb))
        there, back = in_sending_order(tasks)
        return back(await self._send(there, on_commit, progress))

    async def execute_later(self, queue: str, name: str, args: Sequence[Any], delay: float = 0) -> str:
        """The classic call: enqueue a task by name, due `delay` seconds from now; returns its id."""
        return (await self.enqueue(name, args=args, queue=queue, delay=delay)).id

    def group(self, group_id: str) -> "AsyncGroupHandle":
        """The handle of a group, to look at it, add to it, wait for it, cancel it. Asks nothing. Raises InvalidName."""
        return self._flows.group(group_id)

    async def map(self, task: MakesCalls, items: Iterable[Any], **options: "Unpack[MapOptions]") -> "AsyncGroupHandle":
        """Enqueue a task for each item, as a group, as room comes: see `rota.map`, which takes and raises the same."""
        return await self._flows.map(task, items, options)

    # Consuming

    def consumer(
        self, queue: str, *more: str, limit: int = 1, lease_seconds: Duration = fleet_settings.DEFAULT_LEASE_SECONDS
    ) -> "AsyncConsumer":
        """Take tasks of these queues with `async with` and `async for`, at most `limit` (up to 500) at a time: see
        `AsyncConsumer`. It is registered when it is entered.

        What it holds goes elsewhere when it was stopped, or cut off from the server, for `lease_seconds` (at least 1).
        Raises InvalidName, TypeError or ValueError.
        """
        # Imported only here: it brings what a program that only enqueues does without.
        from rota.client.consumer.lease import terms_of  # noqa: PLC0415

        return self._driver.consumer(terms_of((queue, *more), limit, lease_seconds, self._max_payload_kb))

    @property
    def schedules(self) -> "AsyncSchedules":
        """What is enqueued periodically, to be looked at and steered: see `AsyncSchedules`."""
        from rota.client.aio.schedules import AsyncSchedules  # noqa: PLC0415 - as above
        from rota.client.schedule_steps import ScheduleSteps  # noqa: PLC0415

        return AsyncSchedules(self, self._driver, ScheduleSteps(self.namespace, self._max_payload_kb))

    # Looking

    async def status(self, task_id: str, *, args: bool = False) -> TaskStatus:
        """Where a task stands, with its arguments if they are asked for. Never raises: what cannot be found out is
        `unknown`, with the reason in `error`."""
        try:
            return await self._driver.follow(looking_at(self._driver.store, task_id, args=args))
        except RotaError as error:
            return unknown_for(task_id, error)

    async def peek(
        self, queue: str | None = None, state: str = State.READY, *, task: str | None = None, limit: int = DEFAULT_LIMIT
    ) -> list[QueuedTask]:
        """The first tasks that stand in a queue, or in all: those that are `ready` in their order, `scheduled` (next
        due first), `running` or `dead` (latest first); of the name `task` alone where it is given.

        Nothing is looked at beyond those; where some are left out, the search ends after 10,000. Raises ValueError for
        a state or a limit that is none (TypeError for one that is no number), else as `cancel`.
        """
        return await self._driver.follow(peeking(self._driver.store, queue, state, task, limit))

    async def queues(self) -> list[QueueCounts]:
        """All queues that have or had tasks, by name, with how many tasks stand where. Raises as `cancel`."""
        return await self._driver.follow(find_queues(self._driver.store))

    async def explain(
        self, n: int = DEFAULT_CLAIMS, *, queue: str | None = None, task_id: str | None = None, pool: str | None = None
    ) -> "Explanation":
        """The next `n` claims in order, up to 1,000, of each pool or of the one named, and why it is these; of a queue
        or a task why it is not among them, and when it could be.

        The claim itself is run over a copy: nothing is changed. Raises InvalidName, TypeError, ValueError for a number
        that is none or a pool that no master has, else as `cancel`.
        """
        return await self._driver.follow(explaining(self._driver.store, n, queue, task_id, pool))

    def events(
        self,
        after: str | None = None,
        *,
        queue: str | None = None,
        task: str | None = None,
        timeout: Duration | None = None,
    ) -> AsyncTaskEvents:
        """Follow task events on a connection of its own, with `async for`, of one queue or one task if that is named.

        It begins at its place, or raises why it cannot, when it is entered with `async with`, else at the first event.

        `after`: the `id` of the last event that was dealt with, to go on behind it; "0" for all that are kept; None for
        what happens from now on. `timeout`: how long to wait for the next one, None for ever, 0 to give what is there.
        Raises InvalidName; ValueError for an `after` that is none, EventsOff, or Unavailable; later as
        `AsyncTaskEvents` says.
        """
        wanted = wanted_events(after, queue, task, timeout)
        if (interceptor := self._driver.interceptor()) is not None:
            interceptor.run(
                self.namespace, self._driver.store.events("$", BATCH)
            )  # raises: it answers no such question
        return AsyncTaskEvents(self._driver.endpoint, self._driver.timeout_seconds, self._driver.store, wanted)

    # Steering

    async def wait(self, task_id: str, timeout: Duration | None = None) -> TaskStatus:
        """Wait until a task has ended, however that may be, and return its status: `unknown` when nothing is known of
        it (any more). It waits on while the server is away; `timeout` in seconds, None for as long as it takes.

        Raises WaitTimeout, a TimeoutError; InvalidName; or Unavailable when the client is closed meanwhile, or the
        server does not let this user ask.
        """
        return status_of(task_id, await self._state(Goal.END, task_id, timeout))

    async def wait_started(self, task_id: str, timeout: Duration | None = None) -> TaskStatus:
        """Wait until a worker has the task in hand, or it has ended, and return its status; it may be claimed a little
        before its function is called, and given back without. Waits and raises as `wait`."""
        return status_of(task_id, await self._state(Goal.START, task_id, timeout))

    async def result(self, task_id: str, timeout: Duration | None = None) -> Any:
        """Wait until a task has ended, and return what its function returned. Waits as `wait`.

        Raises TaskDead (with the `epitaph`), TaskCancelled or TaskExpired; ResultNotStored, saying why, when it is done
        and there is no result; and as `wait`.
        """
        found = await self._state(Goal.RESULT, task_id, timeout)
        return result_of(status_of(task_id, found), found.result)

    async def cancel(self, task_id: str, kill_after: Duration | None = None) -> CancelWord:
        """End a task that waits (`cancelled`), have `rota.Cancelled` raised in one that runs (`running`); or say that
        it is dead or unknown.

        `kill_after`: so long after it was told its process is killed if it still runs. Raises InvalidName, ValueError
        for a time that is none, Unavailable or Uncertain.
        """
        return await self._driver.run(cancelling(self._driver.store, task_id, kill_after), [task_id])

    async def pause(self, queue: str) -> bool:
        """Have no worker claim from the queue; False when it was paused already. Raises as `cancel`."""
        check_queue(queue)
        return await self._driver.run(self._driver.store.pause(queue)) > 0

    async def resume(self, queue: str) -> bool:
        """Have workers claim from the queue again; False when it was not paused. Raises as `cancel`."""
        check_queue(queue)
        return await self._driver.run(self._driver.store.resume(queue)) > 0

    async def revive(self, task_id: str) -> bool:
        """Put a dead task back in its lane, its failures forgiven; False when it is not dead. Raises as `cancel`."""
        require_name("id", task_id)
        return await self._driver.run(self._driver.store.revive([task_id]), [task_id]) > 0

    async def purge_dead(self, task_id: str) -> bool:
        """Forget a dead task for good; False when it is not dead. Raises as `cancel`."""
        require_name("id", task_id)
        return await self._driver.run(self._driver.store.purge_dead([task_id]), [task_id]) > 0

    # What the methods above have in common

    @cached_property
    def _flows(self) -> "AsyncFlows":
        from rota.client.aio.flows import AsyncFlows  # noqa: PLC0415 - as above
        from rota.client.flow_sending import FlowTerms  # noqa: PLC0415

        checks = Checks(default_registry, self._max_payload_kb)
        terms = FlowTerms(self._driver.store, checks, self._sender, self._driver.warned)
        return AsyncFlows(self, self._driver, terms, self._on_commit)

    async def _state(self, goal: Goal, task_id: str, timeout: Duration | None) -> TaskState:
        """Wait for a task, and for those that it follows."""
        question = WaitQuestion(goal, require_name("id", task_id))
        if (interceptor := interception.interceptor) is not None:
            return interceptor.wait(self.namespace, question)
        left, within = TimeLeft(timeout), timeout
        while True:
            found = await self._driver.wait(question, within)
            assert isinstance(found, TaskState), "it is asked about a task"
            found = await self._driver.follow(look_back(self._driver.store, task_id, found))
            if has_come(question, found):
                return found
            if found.follows:
                with pending_named(question, found, timeout):
                    await self._driver.wait(question_before(found), left.seconds())
            within = left.seconds()

    async def _send(
        self, tasks: Sequence[NewTask], on_commit: OnCommitOption, progress: ProgressOption = None
    ) -> list[AsyncHandle[Any]]:
        if on_commit is ...:
            on_commit = self._on_commit
        if on_commit is None:
            return await self._send_now(tasks, progress)
        return await once_committed(
            on_commit, tasks, partial(self._send_now, progress=progress), lambda: self._expected(tasks)
        )

    async def _send_now(self, tasks: Sequence[NewTask], progress: ProgressOption = None) -> list[AsyncHandle[Any]]:
        if (interceptor := self._driver.interceptor()) is not None:
            words = interceptor.enqueue(self.namespace, tasks)
            tell_all(progress, len(tasks))
            return self._handles(tasks, words)
        if progress is None:
            return await self._driver.drive(self._sender.send(tasks))
        with telling(progress, len(tasks)) as tell:
            return await self._driver.drive(self._sender.send(tasks, tell))

    def _expected(self, tasks: Sequence[NewTask]) -> list[AsyncHandle[Any]]:
        return [AsyncHandle(task.id, duplicate=False, client=self) for task in tasks]

    def _command(self, batch: Batch[NewTask]) -> Command[list[Enqueued]]:
        return self._driver.store.enqueue(batch.nonce, batch.items)

    def _handles(self, tasks: Sequence[NewTask], words: Sequence[Enqueued]) -> list[AsyncHandle[Any]]:
        warned = self._driver.warned
        handles: list[AsyncHandle[Any]] = []
        for task, word in zip(tasks, words, strict=True):
            warned.of_answer(task, word)
            handles.append(AsyncHandle(word.holder or task.id, word.duplicate, self))
        return handles
