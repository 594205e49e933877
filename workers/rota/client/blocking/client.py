"""The application's client: enqueues tasks and asks about them. Thread-safe, and safe to use after a fork."""

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, Unpack, overload

from rota.client.answers import Exchange, value_of
from rota.client.blocking.handles import Handle
from rota.client.blocking.pool import ClientPool
from rota.client.blocking.waiting_thread import Access, Waiting
from rota.client.client_warnings import ClientWarnings, known_names
from rota.client.enqueue_options import (
    OnceSent,
    OnCommit,
    OnCommitOption,
    ProgressOption,
    check_on_commit,
    tell_all,
    telling,
)
from rota.client.failures import Uncertain
from rota.client.flow.methods import Flowing
from rota.client.interception import interception
from rota.client.preparation import KIB, in_sending_order, prepare, prepare_each
from rota.client.sender import Batch, Sender, Sending, WithId, intercepted
from rota.client.waits import (
    Goal,
    GroupQuestion,
    Question,
    WaitAnswer,
    WaitQuestion,
    has_come,
    pending_named,
    question_before,
)
from rota.durations import Duration, TimeLeft, positive_seconds
from rota.errors import RotaError, Unavailable
from rota.protocol.command import Command, Steps, follow
from rota.protocol.groups import Room
from rota.protocol.new_tasks import Enqueued, NewTask
from rota.protocol.store import Store
from rota.protocol.views import TaskState
from rota.protocol.walks import look_back
from rota.server.address import TlsFiles
from rota.server.durability import Durability, confirmation, level_of
from rota.server.endpoint import RedisClient, endpoint_of
from rota.soft_limit import time_limit_deferred
from rota.tasks import fleet_settings
from rota.tasks.call import Call, CallOptions, call_of, many, why_not_positional
from rota.tasks.options import require_name
from rota.tasks.registry import default_registry

if TYPE_CHECKING:
    from rota.client.blocking.handles import ChainHandle, GroupHandle
    from rota.client.consumer import Consumer, Terms
    from rota.client.schedules import Schedules
    from rota.tasks.call_flows import CallChain, CallGroup

R = TypeVar("R")
T = TypeVar("T")
H = TypeVar("H", bound=WithId)


class Client(Flowing):
    """A connection pool to one namespace of one server.

    The server is named by `redis_url`. Or `redis` is a client of the application, of redis-py or valkey-py: a
    `redis.Redis`, what `Sentinel.master_for` returns, a connection pool, or a `RedisCluster`. Then each call borrows a
    connection of its pool.

    `max_payload_kb` bounds one task's body, in KiB. `timeout_seconds` bounds each call in all, whatever it takes to
    connect and however often it asks; of `enqueue_many` each 4,000 tasks. `durability`: what an enqueue waits for
    beyond the server's answer, "none", "wait" (a replica has the task) or "waitaof" (it is on disk). For a `rediss://`
    URL, files of PEM: `redis_tls_ca` holds the certificates of the authorities to trust, instead of the system's;
    `redis_tls_cert` and `redis_tls_key` are what the client shows a server that asks for a certificate. Close it, or
    use it as a context manager, when it is not needed any more.
    """

    is_async: Final = False

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
        """Connects at the first call. Raises ValueError for a URL or a durability that is not valid, InvalidName for a
        namespace that is not, TypeError for an `on_commit` that takes no callback, a `redis` that cannot be used, or
        both `redis` and `redis_url`."""
        self.namespace = require_name("namespace", namespace)
        self._max_payload_kb = max_payload_kb
        self._store = Store(namespace)
        self._timeout_seconds = positive_seconds(timeout_seconds, "timeout_seconds")
        files = TlsFiles(redis_tls_ca, redis_tls_cert, redis_tls_key)
        self._endpoint = endpoint_of(redis_url, files, redis, self._store.keys.tasks)
        self._pool = ClientPool(self._endpoint, self._timeout_seconds)
        self._access = Access(self._endpoint, self._timeout_seconds, self._pool, self._store)
        self._waiting = Waiting(self._access)
        failover = self._endpoint.has_failover
        awaited = confirmation(level_of(durability), failover=failover, timeout_seconds=self._timeout_seconds)
        self._sender = Sender(self._enqueue, self._handles, self._doubt, self._timeout_seconds, awaited)
        self._warned = ClientWarnings(namespace, self._endpoint.place)
        self._on_commit = None if on_commit is None else check_on_commit(on_commit)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; whoever waits is told so by Unavailable. May be repeated; a later call connects
        anew."""
        with time_limit_deferred:
            self._waiting.close()
            self._pool.close()

    # Producing

    @overload
    def enqueue(self, call: Call[R], /, *, on_commit: OnCommitOption = ...) -> Handle[R]: ...
    @overload
    def enqueue(self, chain: "CallChain", /, *, on_commit: OnCommitOption = ...) -> "ChainHandle": ...
    @overload
    def enqueue(self, group: "CallGroup", /, *, on_commit: OnCommitOption = ...) -> "GroupHandle": ...
    @overload
    def enqueue(
        self,
        name: str,
        /,
        *,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        on_commit: OnCommitOption = ...,
        **options: Unpack[CallOptions],
    ) -> Handle[Any]: ...
    def enqueue(
        self,
        what: "Call[Any] | CallChain | CallGroup | str",
        /,
        *positional: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        on_commit: OnCommitOption = ...,
        **options: Unpack[CallOptions],
    ) -> "Handle[Any] | ChainHandle | GroupHandle":
        """Enqueue one call, a chain or a group; or a task by its name: `queue` is required for one not declared in this
        process.

        Raises InvalidArguments, InvalidName or PayloadTooLarge before anything is sent; Unavailable or
        ServerFull when it was not accepted; Uncertain, which can repeat it exactly, when that is not known, or when
        it was accepted and its durability was not confirmed.

        `on_commit` is called with a callback that sends the call, for when a transaction is committed: see `using`.
        """
        if positional:
            raise TypeError(why_not_positional(what, positional))
        call = call_of(what, args, kwargs, options)
        if call is None:
            return self._flows.enqueue(what, on_commit)
        return self._send([prepare(call, default_registry, self._max_payload_kb)], on_commit)[0]

    def enqueue_many(
        self, calls: Iterable[Call[R]], *, on_commit: OnCommitOption = ..., progress: ProgressOption = None
    ) -> list[Handle[R]]:
        """Enqueue many calls, in order, some hundreds a round trip. All are checked before any is sent.

        Those with `front=True` go behind the others, last one first, so that they stand in order at the head of a lane.
        `progress` is given how many were accepted, and of how many, after each 4,000; True draws a bar.

        Raises as `enqueue`; `accepted` of Unavailable and Uncertain names those taken before.
        """
        tasks = list(prepare_each(many(calls), default_registry, self._max_payload_kb))
        there, back = in_sending_order(tasks)
        return back(self._send(there, on_commit, progress))

    def execute_later(self, queue: str, name: str, args: Sequence[Any], delay: float = 0) -> str:
        """The classic call: enqueue a task by name, due `delay` seconds from now; returns its id."""
        return self.enqueue(name, args=args, queue=queue, delay=delay).id

    # Consuming

    def consumer(
        self, queue: str, *more: str, limit: int = 1, lease_seconds: Duration = fleet_settings.DEFAULT_LEASE_SECONDS
    ) -> "Consumer":
        """Take tasks of these queues in this process, at most `limit` (up to 500) at a time: see `Consumer`.

        What it holds goes elsewhere when it was stopped, or cut off from the server, for `lease_seconds` (at least 1).
        Raises InvalidName, TypeError or ValueError; Unavailable or Uncertain when it cannot be registered.
        """
        # Imported only here: it brings what a program that only enqueues does without.
        from rota.client.consumer import terms_of  # noqa: PLC0415

        terms = terms_of((queue, *more), limit, lease_seconds, self._max_payload_kb * KIB)
        return self.consumer_of(terms)

    def consumer_of(self, terms: "Terms") -> "Consumer":
        """The consumer of these terms, which were checked. Raises Unavailable or Uncertain."""
        from rota.client.consumer import Consumer, Lines  # noqa: PLC0415 - as above

        return Consumer(Lines(self._store, self._run, self._endpoint, self._timeout_seconds), terms)

    @property
    def schedules(self) -> "Schedules":
        """What is enqueued periodically, to be looked at and steered: see `Schedules`."""
        from rota.client.schedules import Schedules, ScheduleSteps  # noqa: PLC0415 - as above

        return Schedules(self, self._follow, ScheduleSteps(self.namespace, self._max_payload_kb))

    # Waiting

    def _await(self, goal: Goal, task_id: str, timeout: Duration | None) -> TaskState:
        question = WaitQuestion(goal, require_name("id", task_id))
        if (interceptor := interception.interceptor) is not None:
            return interceptor.wait(self.namespace, question)
        left, within = TimeLeft(timeout), timeout
        while True:
            found = self._wait(question, within)
            assert isinstance(found, TaskState), "it is asked about a task"
            found = self._follow(look_back(self._store, task_id, found))
            if has_come(question, found):
                return found
            if found.follows:
                with pending_named(question, found, timeout):
                    self._wait(question_before(found), left.seconds())
            within = left.seconds()

    def _await_group(self, question: GroupQuestion, timeout: Duration | None) -> Room:
        if (interceptor := interception.interceptor) is not None:
            return interceptor.wait_for_group(self.namespace, question)
        found = self._wait(question, timeout)
        assert isinstance(found, Room), "it is asked about a group"
        return found

    def _wait(self, question: Question, timeout: Duration | None) -> WaitAnswer:
        self._warned.of_blocking()
        if self._waiting.pid != os.getpid():
            self._waiting = Waiting(self._access)
        return self._waiting.wait(question, timeout)

    # Talking to the server

    def _send(
        self, tasks: Sequence[NewTask], on_commit: OnCommitOption, progress: ProgressOption = None
    ) -> list[Handle[Any]]:
        if on_commit is ...:
            on_commit = self._on_commit
        if on_commit is None:
            return self._send_now(tasks, progress)
        callback = OnceSent(tasks, partial(self._send_now, progress=progress))
        check_on_commit(on_commit)(callback)
        if callback.handles is None:
            return [Handle(task.id, duplicate=False, client=self) for task in tasks]
        return callback.handles

    def _send_now(self, tasks: Sequence[NewTask], progress: ProgressOption = None) -> list[Handle[Any]]:
        self._warned.of_blocking()
        if (interceptor := interception.interceptor) is not None:
            words = interceptor.enqueue(self.namespace, tasks)
            tell_all(progress, len(tasks))
            return self._handles(tasks, words)
        if progress is None:
            return self._sent(self._drive(self._sender.send(tasks)))
        with telling(progress, len(tasks)) as tell:
            return self._sent(self._drive(self._sender.send(tasks, tell)))

    def _send_flow(self, sending: Sending[H]) -> list[H]:
        self._warned.of_blocking()
        if (interceptor := interception.interceptor) is not None:
            return intercepted(interceptor, self.namespace, sending)
        return self._sent(self._drive(sending))

    def _sent(self, handles: list[H]) -> list[H]:
        """Check the names of tasks that this process does not declare, each once."""
        if names := self._warned.names_to_check():
            with suppress(RotaError):
                known = self._follow(known_names(self._store))
                self._warned.of_names(names, known)
        return handles

    def _drive(self, sending: Sending[H]) -> list[H]:
        with time_limit_deferred:
            try:
                exchange = next(sending)
                while True:
                    try:
                        answers = self._pool.exchange(exchange)
                    except Unavailable as error:
                        exchange = sending.throw(error)
                    else:
                        exchange = sending.send(answers)
            except StopIteration as end:
                handles: list[H] = end.value
                return handles

    def _doubt(self, why: str, ids: Sequence[str], again: Callable[[], Sending[Handle[Any]]]) -> Uncertain:
        return Uncertain(why, ids, again=lambda: self._drive(again()))

    def _follow(self, steps: Steps[T], /) -> T:
        deadline = time.monotonic() + self._timeout_seconds
        return follow(lambda command: self._run(command, (), deadline), steps)

    def _run(self, command: Command[T], ids: Sequence[str] = (), deadline: float | None = None) -> T:
        """Send a command, once: without a nonce a second time would be a second call.

        Raises Unavailable, or Uncertain when no answer came.
        """
        self._warned.of_blocking()
        if (interceptor := interception.interceptor) is not None:
            return interceptor.run(self.namespace, command)
        until = time.monotonic() + self._timeout_seconds if deadline is None else deadline
        with time_limit_deferred:
            [answer] = self._pool.exchange(Exchange([command], None, until))
        return value_of(answer, ids)

    def _enqueue(self, batch: Batch[NewTask]) -> Command[list[Enqueued]]:
        return self._store.enqueue(batch.nonce, batch.items)

    def _handles(self, tasks: Sequence[NewTask], words: Sequence[Enqueued]) -> list[Handle[Any]]:
        handles: list[Handle[Any]] = []
        for task, word in zip(tasks, words, strict=True):
            self._warned.note(task)
            if word.unserved or word.unseen:
                self._warned.of_answer(task, word)
            handles.append(Handle(word.holder or task.id, word.duplicate, self))
        return handles
