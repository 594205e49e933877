"""The client of an application, which enqueues tasks, inspects them, waits for them and controls queues."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from rota.client.aio.administration import AsyncAdministration
from rota.client.aio.driver import REPEATS, AsyncDriver, in_chunks, once_committed
from rota.client.aio.event_stream import AsyncTaskEvents
from rota.client.aio.handles import AsyncHandle
from rota.client.enqueue_options import (
    OnCommit,
    OnCommitOption,
    ProgressOption,
    check_on_commit,
    interception,
    progress_reporter,
    report_all,
)
from rota.client.inquiries import (
    cancel_command,
    explain_steps,
    peek_steps,
    result_of,
    status_steps,
    unknown_for,
    wanted_events,
)
from rota.client.preparation import Checks, in_sending_order, prepare, prepare_each
from rota.client.queues import DEFAULT_LIMIT, QueueCounts, QueuedTask, find_queues
from rota.client.sender import Batch, Sender
from rota.client.status import TaskStatus, status_of
from rota.client.waits import Goal, TaskQuery, has_come, pending_named, query_before
from rota.durations import Duration, TimeLeft, positive_seconds
from rota.errors import RotaError
from rota.foreign_names import KnowsForeignNames
from rota.protocol.new_tasks import Enqueued, NewTask
from rota.protocol.replies import CancelStatus
from rota.protocol.scans import complete_status
from rota.protocol.scripts import ScriptCall
from rota.protocol.signatures import SigningSettings
from rota.protocol.store import BATCH
from rota.protocol.task_states import State
from rota.protocol.turns import DEFAULT_CLAIMS
from rota.protocol.views import TaskState
from rota.server.address import ServerAccess, TlsFiles
from rota.server.endpoint import RedisClient
from rota.server.logins import CredentialProvider, logins_of
from rota.server.session import Durability, confirmation, level_of
from rota.tasks import fleet_settings
from rota.tasks.call import Call, CallOptions, MakesCalls, call_of, many, why_not_positional
from rota.tasks.keyring import keyring_of
from rota.tasks.options import require_name
from rota.tasks.registry import default_registry

if TYPE_CHECKING:
    from rota.client.aio.consumer import AsyncConsumer
    from rota.client.aio.flows import AsyncFlows
    from rota.client.aio.handles import AsyncChainHandle, AsyncGroupHandle
    from rota.client.aio.schedules import AsyncSchedules
    from rota.client.explanation import Explanation
    from rota.client.flow_sender import MapOptions
    from rota.tasks.call import CallChain, CallGroup

R = TypeVar("R")


class AsyncClient(AsyncAdministration, KnowsForeignNames, kind="client"):
    """An asyncio client for one namespace of one server.

    It takes the same arguments as `Client`, except that `redis` is a client for asyncio, such as `redis.asyncio.Redis`.
    All asyncio tasks of an event loop share one connection for commands and a second one for waits. The client belongs
    to the event loop that uses it first. Another loop may use it only after the first loop is closed. Close the client
    with `aclose`, or use it as an async context manager:

        async with rota.AsyncClient("redis://localhost:6379/0") as client:
            handle = await client.enqueue(resize.call(7))
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
        signing_keys: "Mapping[str, str | bytes] | None" = None,
        sign_with: str = "",
        signing_required: bool = False,
        redis_tls_ca: str = "",
        redis_tls_cert: str = "",
        redis_tls_key: str = "",
        redis_credentials: CredentialProvider | None = None,
        on_commit: OnCommit | None = None,
    ) -> None:
        """Check the arguments. The first call connects.

        Raises:
            ValueError: If the URL, the durability, the timeout, `max_payload_kb` or a signing key is not valid.
            InvalidName: If the namespace is not valid.
            TypeError: If `on_commit` is not a function that takes a callback, if `redis` cannot be used, or if both
                `redis` and `redis_url` are given.
        """
        self.namespace = require_name("namespace", namespace)
        self._max_payload_kb = fleet_settings.check_payload_limit(max_payload_kb)
        self._keyring = keyring_of(SigningSettings(signing_keys or {}, sign_with, signing_required))
        seconds = positive_seconds(timeout_seconds, "timeout_seconds")
        files = TlsFiles(redis_tls_ca, redis_tls_cert, redis_tls_key)
        access = ServerAccess(files, logins_of(redis_credentials))
        self._driver = AsyncDriver(redis_url, access, redis, namespace, seconds)
        failover = self._driver.endpoint.has_failover
        confirmed = confirmation(level_of(durability), failover=failover, timeout_seconds=seconds)
        self._sender = Sender(self._command, self._handles, self._driver.doubt, seconds, confirmed, repeats=REPEATS)
        self._on_commit = None if on_commit is None else check_on_commit(on_commit)

    # Enqueueing

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
        """Enqueue one call, a chain, a group, or a task by its name, and return its handle.

        If `what` is a name, pass `queue` unless this process declares the task. Invalid input is never sent.

            handle = await client.enqueue(resize.call(7))
            handle = await client.enqueue("resize", args=[7], queue="images", delay=60)

        The call is sent before this method returns, so sending cannot wait for a commit. If a transaction is open, and
        `on_commit` therefore does not call back at once, nothing is sent and RuntimeError is raised.

        If the await is cancelled, CancelledError has a cause: Uncertain if the call was sent, and Unavailable if it was
        not. `Uncertain.behind` returns that Uncertain, and its `arepeat` repeats the call exactly.

        Raises:
            InvalidArguments: If the arguments are not JSON, or do not fit the signature of the task.
            InvalidName: If the task, its id or its queue is not a valid name, or the queue is missing.
            PayloadTooLarge: If the body is larger than `max_payload_kb`.
            TypeError: If the first argument is not a call, a chain, a group or a name, or an option has a wrong type.
            ValueError: If an option is not valid, or two options exclude each other, such as `delay` and `at`.
            Unavailable: If the server cannot be reached or refuses the call. The call was not accepted.
            ServerFull: If the server has no memory left. The call was not accepted.
            Uncertain: If the call may have been accepted, or its durability was not confirmed: see `Uncertain`.
            GroupEnded: If a group with this id ended or was cancelled before all its members were accepted.
        """
        if positional:
            raise TypeError(why_not_positional(what, positional))
        call = call_of(what, args, kwargs, options)
        if call is None:
            return await self._flows.enqueue(what, on_commit)
        return (await self._send([prepare(call, default_registry, self._max_payload_kb, self._keyring)], on_commit))[0]

    async def enqueue_many(
        self, calls: Iterable[Call[R]], *, on_commit: OnCommitOption = ..., progress: ProgressOption = None
    ) -> list[AsyncHandle[R]]:
        """Enqueue many calls in order, a few hundred per round trip, and return their handles in the same order.

        All calls are checked before any is sent. Calls with `front=True` are sent after the others, in reverse order,
        so that they end up in order at the head of their lane. `progress` is called with the number of accepted calls
        and the total number of calls, at least after every 4,000 calls. `progress=True` draws a progress bar in the
        terminal.

        Raises:
            InvalidArguments, InvalidName, PayloadTooLarge, TypeError, ValueError: See `enqueue`. The message contains
                the number of the call, counted from 0. Nothing was sent.
            Unavailable, ServerFull, Uncertain: See `enqueue`. The error's `accepted` lists the ids of the tasks that
                were accepted before the error. The calls after the failed ones were not sent.
        """
        tasks = await in_chunks(prepare_each(many(calls), default_registry, self._max_payload_kb, self._keyring))
        there, back = in_sending_order(tasks)
        return back(await self._send(there, on_commit, progress))

    async def execute_later(self, queue: str, name: str, args: Sequence[Any], delay: float = 0) -> str:
        """Enqueue a task by its name, due `delay` seconds from now, and return its id.

        The signature is the one that older, hand-written producers use. New code should call `enqueue`. Raises the
        errors of `enqueue`.
        """
        return (await self.enqueue(name, args=args, queue=queue, delay=delay)).id

    def group(self, group_id: str) -> "AsyncGroupHandle":
        """Return the handle of a group, to inspect it, add to it, wait for it or cancel it.

        Nothing is sent, so this returns a handle even if no group has this id. The status of such a group is `unknown`.

        Raises:
            InvalidName: If the id is not a valid name.
        """
        return self._flows.group(group_id)

    async def map(self, task: MakesCalls, items: Iterable[Any], **options: "Unpack[MapOptions]") -> "AsyncGroupHandle":
        """Enqueue a task for each item, as a group, and return its handle when all items are accepted.

        At most `max_waiting` (default 1,000) of the tasks are unfinished at a time, so this call waits until workers
        have finished enough of them. See `rota.map`, which has the same options and raises the same errors.
        """
        return await self._flows.map(task, items, options)

    # Taking tasks

    def consumer(
        self, queue: str, *more: str, limit: int = 1, lease_seconds: Duration = fleet_settings.DEFAULT_LEASE_SECONDS
    ) -> "AsyncConsumer":
        """Return a consumer, which claims tasks of these queues and holds at most `limit` (1 to 500) of them at a time.

        See `AsyncConsumer`. The consumer registers at the start of an `async with` block:

            async with client.consumer("mail", limit=10) as tasks:
                async for task in tasks:
                    async with task:
                        send(*task.args)

        If the process is suspended or cut off from the server for `lease_seconds` (at least 1), its tasks return to
        their lanes.

        Raises:
            InvalidName: If a queue is not a valid name.
            TypeError: If `limit` or `lease_seconds` has a wrong type.
            ValueError: If `limit` or `lease_seconds` is out of range.
        """
        # Imported here because a program that only enqueues does not need the module.
        from rota.client.consumer.lease import consumer_options  # noqa: PLC0415

        queues = (queue, *more)
        options = consumer_options(queues, limit, lease_seconds, self._max_payload_kb, self._keyring)
        return self._driver.consumer(options)

    @property
    def schedules(self) -> "AsyncSchedules":
        """The schedules of the fleet, to list, change and run: see `AsyncSchedules`."""
        from rota.client.aio.schedules import AsyncSchedules  # noqa: PLC0415 - only those who use it load it
        from rota.client.schedule_steps import ScheduleSteps  # noqa: PLC0415

        return AsyncSchedules(self, self._driver, ScheduleSteps(self.namespace, self._max_payload_kb, self._keyring))

    # Inspecting

    async def status(self, task_id: str, *, args: bool = False) -> TaskStatus:
        """Return the status of a task, with its arguments if `args` is true.

        The status has the state, the queue, the times and counters, and the records of attempts that failed. This
        raises no error: if the status cannot be read, its `state` is `unknown` and its `error` gives the reason.
        """
        try:
            return await self._driver.follow(status_steps(self._driver.store, task_id, args=args))
        except RotaError as error:
            return unknown_for(task_id, error)

    async def peek(
        self, queue: str | None = None, state: str = State.READY, *, task: str | None = None, limit: int = DEFAULT_LIMIT
    ) -> list[QueuedTask]:
        """Return the first `limit` tasks in one state, either of one queue or of all queues.

        `state` is `ready` (in the order of the lanes), `scheduled` (next due first), `running` or `dead` (latest
        first). `task` restricts the list to one task name, for example `peek("mail", "dead", task="send")`. The search
        stops after it has read 10,000 tasks, even if fewer than `limit` tasks match.

        Raises:
            ValueError: If the state or the limit is not valid.
            TypeError: If the limit is not a whole number.
            InvalidName: If the queue or the task name is not valid.
            Unavailable: If the server cannot be reached or refuses the call.
            Uncertain: If the server did not reply in time.
        """
        return await self._driver.follow(peek_steps(self._driver.store, queue, state, task, limit))

    async def queues(self) -> list[QueueCounts]:
        """Return all queues that have or had tasks, sorted by name, with the number of tasks in each state.

        Each queue also has the age of its oldest ready task, and whether it is paused, served by a running fleet, or
        closed by a condition.

        Raises:
            Unavailable: If the server cannot be reached or refuses the call.
            Uncertain: If the server did not reply in time.
        """
        return await self._driver.follow(find_queues(self._driver.store))

    async def explain(
        self, n: int = DEFAULT_CLAIMS, *, queue: str | None = None, task_id: str | None = None, pool: str | None = None
    ) -> "Explanation":
        """Return the next `n` claims (1 to 1,000) of each pool, in order and with their reasons.

        `pool` restricts this to one pool. With `queue` or `task_id`, the result also explains why that queue or task is
        not among these claims, and when it could be. The claiming script runs on a copy of the data, so nothing
        changes.

        Raises:
            InvalidName: If the queue, the pool or the id is not a valid name.
            TypeError: If `n` is not a whole number.
            ValueError: If `n` is out of range, if both a queue and a task are named, or if no running master has this
                pool.
            Unavailable: If the server cannot be reached or refuses the call.
            Uncertain: If the server did not reply in time.
        """
        return await self._driver.follow(explain_steps(self._driver.store, n, queue, task_id, pool))

    def events(
        self,
        after: str | None = None,
        *,
        queue: str | None = None,
        task: str | None = None,
        timeout: Duration | None = None,
    ) -> AsyncTaskEvents:
        """Follow task events with `async for`, optionally only events of one queue or of one task name.

        The reader has its own connection. `async with` determines the position to start from, or raises one of the
        errors below. Without `async with`, this happens when the first event is requested:

            async with client.events(queue="mail", timeout=60) as events:
                async for event in events:
                    print(event)

        `after` is the `id` of the last event that was processed, "0" for all events that are kept, or None for the
        events that happen from now on. `timeout` limits the wait for the next event, in seconds or as a timedelta. None
        waits forever, and 0 returns only events that are already there.

        Raises:
            InvalidName: If the queue or the task name is not valid.
            ValueError: If `after` is not the id of an event.
            EventsOff: If no fleet of the namespace writes task events.
            Unavailable: If the server cannot be reached or refuses the call. For the errors of iteration, see
                `AsyncTaskEvents`.
        """
        wanted = wanted_events(after, queue, task, timeout)
        if (interceptor := self._driver.interceptor()) is not None:
            # A stand-in has no events, so this call raises NeedsServer.
            interceptor.run(self.namespace, self._driver.store.events("$", BATCH))
        return AsyncTaskEvents(self._driver.endpoint, self._driver.timeout_seconds, self._driver.store, wanted)

    # Waiting for tasks and cancelling them

    async def wait(self, task_id: str, timeout: Duration | None = None) -> TaskStatus:
        """Wait until a task has ended, whether it succeeded or not, and return its status.

        The state is `unknown` if the server does not know the task or has forgotten it. The wait continues while the
        server cannot be reached. `timeout` is in seconds or a timedelta. None waits forever.

        Raises:
            WaitTimeout: If the task has not ended in time. The task continues. WaitTimeout is a TimeoutError.
            InvalidName: If the id is not a valid name.
            Unavailable: If the client is closed during the wait, or if the server does not permit this user to wait.
        """
        return status_of(task_id, await self._state(Goal.END, task_id, timeout))

    async def wait_started(self, task_id: str, timeout: Duration | None = None) -> TaskStatus:
        """Wait until a worker has claimed the task, or the task has ended, and return its status.

        A worker claims a task shortly before it calls the function. It may still return the task to its queue without
        calling the function.

        Raises:
            WaitTimeout, InvalidName, Unavailable: See `wait`.
        """
        return status_of(task_id, await self._state(Goal.START, task_id, timeout))

    async def result(self, task_id: str, timeout: Duration | None = None) -> Any:
        """Wait until a task has ended, and return what its function returned.

        The wait continues while the server cannot be reached. `timeout` is in seconds or a timedelta. None waits
        forever.

        Raises:
            TaskDead: If the task is dead. Its `death` describes how it died.
            TaskCancelled: If the task was cancelled, or purged with its queue.
            TaskExpired: If no worker started the task before it expired.
            ResultNotStored: If the task is done without a stored result, or nothing is known about the task. The
                message states the reason.
            WaitTimeout, InvalidName, Unavailable: See `wait`.
        """
        found = await self._state(Goal.RESULT, task_id, timeout)
        return result_of(status_of(task_id, found), found.result)

    async def cancel(self, task_id: str, kill_after: Duration | None = None) -> CancelStatus:
        """Cancel a task, and return the result as a CancelStatus.

        A waiting task ends at once (`cancelled`). In a running task, `rota.Cancelled` is raised (`running`). A
        task that is `dead` or `unknown` is not changed. `kill_after` is a time in seconds or a timedelta: if the task
        is still running that long after the worker was notified, the worker is killed.

        Raises:
            InvalidName: If the id is not a valid name.
            ValueError: If `kill_after` is not above 0.
            Unavailable: If the server cannot be reached or refuses the call. Nothing was changed.
            Uncertain: If the server did not reply in time. The task may have been cancelled. The call can be repeated.
        """
        return await self._driver.run(cancel_command(self._driver.store, task_id, kill_after), [task_id])

    # Helpers for the methods above

    @cached_property
    def _flows(self) -> "AsyncFlows":
        from rota.client.aio.flows import AsyncFlows  # noqa: PLC0415 - only those who use it load it
        from rota.client.flow_sender import FlowContext  # noqa: PLC0415

        checks = Checks(default_registry, self._max_payload_kb, self._keyring)
        context = FlowContext(self._driver.store, checks, self._sender, self._driver.warnings)
        return AsyncFlows(self, self._driver, context, self._on_commit)

    async def _state(self, goal: Goal, task_id: str, timeout: Duration | None) -> TaskState:
        """Wait until a task has started or ended, depending on the `goal`, and return its state.

        If the task is pending in a chain or follows a group, this first waits for the task or group that it follows.
        """
        query = TaskQuery(goal, require_name("id", task_id))
        if (interceptor := interception.interceptor) is not None:
            return interceptor.wait(self.namespace, query)
        left = TimeLeft(timeout)
        within = timeout
        while True:
            found = await self._driver.wait(query, within)
            assert isinstance(found, TaskState), "a query about a task is answered with its state"
            found = await self._driver.follow(complete_status(self._driver.store, task_id, found))
            if has_come(query, found):
                return found
            if found.follows:
                with pending_named(query, found, timeout):
                    await self._driver.wait(query_before(found), left.seconds())
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
            replies = interceptor.enqueue(self.namespace, tasks)
            report_all(progress, len(tasks))
            return self._handles(tasks, replies)
        if progress is None:
            return await self._driver.drive(self._sender.send(tasks))
        with progress_reporter(progress, len(tasks)) as report:
            return await self._driver.drive(self._sender.send(tasks, report))

    def _expected(self, tasks: Sequence[NewTask]) -> list[AsyncHandle[Any]]:
        return [AsyncHandle(task.id, duplicate=False, client=self) for task in tasks]

    def _command(self, batch: Batch[NewTask]) -> ScriptCall[list[Enqueued]]:
        return self._driver.store.enqueue(batch.nonce, batch.items)

    def _handles(self, tasks: Sequence[NewTask], replies: Sequence[Enqueued]) -> list[AsyncHandle[Any]]:
        warnings = self._driver.warnings
        handles: list[AsyncHandle[Any]] = []
        for task, reply in zip(tasks, replies, strict=True):
            warnings.check_reply(task, reply)
            handles.append(AsyncHandle(reply.holder or task.id, reply.duplicate, self))
        return handles
