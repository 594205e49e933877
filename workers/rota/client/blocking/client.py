# Generated from rota/client/aio/client.py by `make blocking`: change that, not this.
"""The application's client: enqueues tasks and asks about them."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from rota.client.blocking.driver import REPEATS, Driver, Lifecycle, in_portions, once_committed
from rota.client.blocking.handles import Handle
from rota.client.enqueue_options import (
    OnCommit,
    OnCommitOption,
    ProgressOption,
    check_on_commit,
    interception,
    tell_all,
    telling,
)
from rota.client.event_stream import TaskEvents
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
    from rota.client.blocking.flows import Flows
    from rota.client.blocking.handles import ChainHandle, GroupHandle
    from rota.client.blocking.schedules import Schedules
    from rota.client.consumer import Consumer
    from rota.client.explanation import Explanation
    from rota.client.flow_sending import MapOptions
    from rota.tasks.call import CallChain, CallGroup

R = TypeVar("R")


class Client(Lifecycle, KnowsForeignNames, place="client"):
    """A connection pool to one namespace of one server. Thread-safe, and safe to use after a fork.

    The server is named by `redis_url`. Or `redis` is a client of the application, of redis-py or valkey-py: a
    `redis.Redis`, what `Sentinel.master_for` returns, a connection pool, or a `RedisCluster`. Then each call borrows a
    connection of its pool.

    `max_payload_kb` bounds one task's body, in KiB. `timeout_seconds` bounds each call in all, whatever it takes to
    connect and however often it asks; of `enqueue_many` each 4,000 tasks. `durability`: what an enqueue waits for
    beyond the server's answer, "none", "wait" (a replica has the task) or "waitaof" (it is on disk). For a `rediss://`
    URL, files of PEM: `redis_tls_ca` holds the certificates of the authorities to trust, instead of the system's;
    `redis_tls_cert` and `redis_tls_key` are what the client shows a server that asks for a certificate.
    `redis_credentials`: a function without arguments that returns user and password, and when they expire, or an object
    with `get_credentials()` as redis-py has it, or where either is, as in "module:name". It is called again ahead of
    that time, and when the server refuses what it gave. Close the client, or use it as a context manager, when it is
    not needed any more.
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
        self._driver = Driver(redis_url, access, redis, namespace, seconds)
        failover = self._driver.endpoint.has_failover
        confirmed = confirmation(level_of(durability), failover=failover, timeout_seconds=seconds)
        self._sender = Sender(self._command, self._handles, self._driver.doubt, seconds, confirmed, repeats=REPEATS)
        self._on_commit = None if on_commit is None else check_on_commit(on_commit)

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
        return (self._send([prepare(call, default_registry, self._max_payload_kb)], on_commit))[0]

    def enqueue_many(
        self, calls: Iterable[Call[R]], *, on_commit: OnCommitOption = ..., progress: ProgressOption = None
    ) -> list[Handle[R]]:
        """Enqueue many calls, in order, some hundreds a round trip. All are checked before any is sent.

        Those with `front=True` go behind the others, last one first, so that they stand in order at the head of a lane.
        `progress` is given how many were accepted, and of how many, after each 4,000; True draws a bar.

        Raises as `enqueue`; `accepted` of Unavailable and Uncertain names those taken before.
        """
        tasks = in_portions(prepare_each(many(calls), default_registry, self._max_payload_kb))
        there, back = in_sending_order(tasks)
        return back(self._send(there, on_commit, progress))

    def execute_later(self, queue: str, name: str, args: Sequence[Any], delay: float = 0) -> str:
        """The classic call: enqueue a task by name, due `delay` seconds from now; returns its id."""
        return (self.enqueue(name, args=args, queue=queue, delay=delay)).id

    def group(self, group_id: str) -> "GroupHandle":
        """The handle of a group, to look at it, add to it, wait for it, cancel it. Asks nothing. Raises InvalidName."""
        return self._flows.group(group_id)

    def map(self, task: MakesCalls, items: Iterable[Any], **options: "Unpack[MapOptions]") -> "GroupHandle":
        """Enqueue a task for each item, as a group, as room comes: see `rota.map`, which takes and raises the same."""
        return self._flows.map(task, items, options)

    # Consuming

    def consumer(
        self, queue: str, *more: str, limit: int = 1, lease_seconds: Duration = fleet_settings.DEFAULT_LEASE_SECONDS
    ) -> "Consumer":
        """Take tasks of these queues in this process, at most `limit` (up to 500) at a time: see `Consumer`.

        What it holds goes elsewhere when it was stopped, or cut off from the server, for `lease_seconds` (at least 1).
        Raises InvalidName, TypeError or ValueError; Unavailable or Uncertain when it cannot be registered.
        """
        # Imported only here: it brings what a program that only enqueues does without.
        from rota.client.consumer.lease import terms_of  # noqa: PLC0415

        return self._driver.consumer(terms_of((queue, *more), limit, lease_seconds, self._max_payload_kb))

    @property
    def schedules(self) -> "Schedules":
        """What is enqueued periodically, to be looked at and steered: see `Schedules`."""
        from rota.client.blocking.schedules import Schedules  # noqa: PLC0415 - as above
        from rota.client.schedule_steps import ScheduleSteps  # noqa: PLC0415

        return Schedules(self, self._driver, ScheduleSteps(self.namespace, self._max_payload_kb))

    # Looking

    def status(self, task_id: str, *, args: bool = False) -> TaskStatus:
        """Where a task stands, with its arguments if they are asked for. Never raises: what cannot be found out is
        `unknown`, with the reason in `error`."""
        try:
            return self._driver.follow(looking_at(self._driver.store, task_id, args=args))
        except RotaError as error:
            return unknown_for(task_id, error)

    def peek(
        self, queue: str | None = None, state: str = State.READY, *, task: str | None = None, limit: int = DEFAULT_LIMIT
    ) -> list[QueuedTask]:
        """The first tasks that stand in a queue, or in all: those that are `ready` in their order, `scheduled` (next
        due first), `running` or `dead` (latest first); of the name `task` alone where it is given.

        Nothing is looked at beyond those; where some are left out, the search ends after 10,000. Raises ValueError for
        a state or a limit that is none (TypeError for one that is no number), else as `cancel`.
        """
        return self._driver.follow(peeking(self._driver.store, queue, state, task, limit))

    def queues(self) -> list[QueueCounts]:
        """All queues that have or had tasks, by name, with how many tasks stand where. Raises as `cancel`."""
        return self._driver.follow(find_queues(self._driver.store))

    def explain(
        self, n: int = DEFAULT_CLAIMS, *, queue: str | None = None, task_id: str | None = None, pool: str | None = None
    ) -> "Explanation":
        """The next `n` claims in order, up to 1,000, of each pool or of the one named, and why it is these; of a queue
        or a task why it is not among them, and when it could be.

        The claim itself is run over a copy: nothing is changed. Raises InvalidName, TypeError, ValueError for a number
        that is none or a pool that no master has, else as `cancel`.
        """
        return self._driver.follow(explaining(self._driver.store, n, queue, task_id, pool))

    def events(
        self,
        after: str | None = None,
        *,
        queue: str | None = None,
        task: str | None = None,
        timeout: Duration | None = None,
    ) -> TaskEvents:
        """Follow the task events of the fleet, of one queue or one task if that is named, on a connection of its own.

        `after`: the `id` of the last event that was dealt with, to go on behind it; "0" for all that are kept; None for
        what happens from now on. `timeout`: how long to wait for the next one, None for ever, 0 to give what is there.
        Raises InvalidName; ValueError for an `after` that is none, EventsOff, or Unavailable; later as
        `TaskEvents` says.
        """
        wanted = wanted_events(after, queue, task, timeout)
        if (interceptor := self._driver.interceptor()) is not None:
            interceptor.run(
                self.namespace, self._driver.store.events("$", BATCH)
            )  # raises: it answers no such question
        return TaskEvents(self._driver.endpoint, self._driver.timeout_seconds, self._driver.store, wanted)

    # Steering

    def wait(self, task_id: str, timeout: Duration | None = None) -> TaskStatus:
        """Wait until a task has ended, however that may be, and return its status: `unknown` when nothing is known of
        it (any more). It waits on while the server is away; `timeout` in seconds, None for as long as it takes.

        Raises WaitTimeout, a TimeoutError; InvalidName; or Unavailable when the client is closed meanwhile, or the
        server does not let this user ask.
        """
        return status_of(task_id, self._state(Goal.END, task_id, timeout))

    def wait_started(self, task_id: str, timeout: Duration | None = None) -> TaskStatus:
        """Wait until a worker has the task in hand, or it has ended, and return its status; it may be claimed a little
        before its function is called, and given back without. Waits and raises as `wait`."""
        return status_of(task_id, self._state(Goal.START, task_id, timeout))

    def result(self, task_id: str, timeout: Duration | None = None) -> Any:
        """Wait until a task has ended, and return what its function returned. Waits as `wait`.

        Raises TaskDead (with the `epitaph`), TaskCancelled or TaskExpired; ResultNotStored, saying why, when it is done
        and there is no result; and as `wait`.
        """
        found = self._state(Goal.RESULT, task_id, timeout)
        return result_of(status_of(task_id, found), found.result)

    def cancel(self, task_id: str, kill_after: Duration | None = None) -> CancelWord:
        """End a task that waits (`cancelled`), have `rota.Cancelled` raised in one that runs (`running`); or say that
        it is dead or unknown.

        `kill_after`: so long after it was told its process is killed if it still runs. Raises InvalidName, ValueError
        for a time that is none, Unavailable or Uncertain.
        """
        return self._driver.run(cancelling(self._driver.store, task_id, kill_after), [task_id])

    def pause(self, queue: str) -> bool:
        """Have no worker claim from the queue; False when it was paused already. Raises as `cancel`."""
        check_queue(queue)
        return self._driver.run(self._driver.store.pause(queue)) > 0

    def resume(self, queue: str) -> bool:
        """Have workers claim from the queue again; False when it was not paused. Raises as `cancel`."""
        check_queue(queue)
        return self._driver.run(self._driver.store.resume(queue)) > 0

    def revive(self, task_id: str) -> bool:
        """Put a dead task back in its lane, its failures forgiven; False when it is not dead. Raises as `cancel`."""
        require_name("id", task_id)
        return self._driver.run(self._driver.store.revive([task_id]), [task_id]) > 0

    def purge_dead(self, task_id: str) -> bool:
        """Forget a dead task for good; False when it is not dead. Raises as `cancel`."""
        require_name("id", task_id)
        return self._driver.run(self._driver.store.purge_dead([task_id]), [task_id]) > 0

    # What the methods above have in common

    @cached_property
    def _flows(self) -> "Flows":
        from rota.client.blocking.flows import Flows  # noqa: PLC0415 - as above
        from rota.client.flow_sending import FlowTerms  # noqa: PLC0415

        checks = Checks(default_registry, self._max_payload_kb)
        terms = FlowTerms(self._driver.store, checks, self._sender, self._driver.warned)
        return Flows(self, self._driver, terms, self._on_commit)

    def _state(self, goal: Goal, task_id: str, timeout: Duration | None) -> TaskState:
        """Wait for a task, and for those that it follows."""
        question = WaitQuestion(goal, require_name("id", task_id))
        if (interceptor := interception.interceptor) is not None:
            return interceptor.wait(self.namespace, question)
        left, within = TimeLeft(timeout), timeout
        while True:
            found = self._driver.wait(question, within)
            assert isinstance(found, TaskState), "it is asked about a task"
            found = self._driver.follow(look_back(self._driver.store, task_id, found))
            if has_come(question, found):
                return found
            if found.follows:
                with pending_named(question, found, timeout):
                    self._driver.wait(question_before(found), left.seconds())
            within = left.seconds()

    def _send(
        self, tasks: Sequence[NewTask], on_commit: OnCommitOption, progress: ProgressOption = None
    ) -> list[Handle[Any]]:
        if on_commit is ...:
            on_commit = self._on_commit
        if on_commit is None:
            return self._send_now(tasks, progress)
        return once_committed(
            on_commit, tasks, partial(self._send_now, progress=progress), lambda: self._expected(tasks)
        )

    def _send_now(self, tasks: Sequence[NewTask], progress: ProgressOption = None) -> list[Handle[Any]]:
        if (interceptor := self._driver.interceptor()) is not None:
            words = interceptor.enqueue(self.namespace, tasks)
            tell_all(progress, len(tasks))
            return self._handles(tasks, words)
        if progress is None:
            return self._driver.drive(self._sender.send(tasks))
        with telling(progress, len(tasks)) as tell:
            return self._driver.drive(self._sender.send(tasks, tell))

    def _expected(self, tasks: Sequence[NewTask]) -> list[Handle[Any]]:
        return [Handle(task.id, duplicate=False, client=self) for task in tasks]

    def _command(self, batch: Batch[NewTask]) -> Command[list[Enqueued]]:
        return self._driver.store.enqueue(batch.nonce, batch.items)

    def _handles(self, tasks: Sequence[NewTask], words: Sequence[Enqueued]) -> list[Handle[Any]]:
        warned = self._driver.warned
        handles: list[Handle[Any]] = []
        for task, word in zip(tasks, words, strict=True):
            warned.of_answer(task, word)
            handles.append(Handle(word.holder or task.id, word.duplicate, self))
        return handles
