"""The application's client: enqueues tasks and asks about them. Thread-safe, and safe to use after a fork."""

import inspect
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, assert_never, overload

from rota.client import settings
from rota.client.call import CALL_OPTIONS, Call, CallOptions, fault_in_call_options, why_no_call, why_not_positional
from rota.client.interception import interception
from rota.client.looking import Looking
from rota.client.open_waits import Goal, WaitQuestion
from rota.client.pool import Answered, ClientPool, NotAccepted, Unanswered, Unconfirmed
from rota.client.prepare import KIB, prepare, require_name, sending_order
from rota.client.results import result_of
from rota.client.sender import Sender
from rota.client.status import Handle, TaskStatus, status_of
from rota.client.waiting import Waiting
from rota.client.waiting_thread import Access
from rota.durations import Duration, positive_milliseconds, positive_seconds
from rota.errors import RotaWarning, Uncertain, UnseenNamespace, UnservedQueue
from rota.options import check_queue
from rota.protocol.command import Command
from rota.protocol.replies import CancelWord, Enqueued
from rota.protocol.store import NewTask, Store
from rota.protocol.views import TaskState
from rota.registry import default_registry
from rota.server.address import parse_address
from rota.server.durability import Durability, confirmation, level_of
from rota.soft_limit import time_limit_deferred

if TYPE_CHECKING:
    from rota.client.consumer import Consumer
    from rota.client.schedules import Schedules

R = TypeVar("R")
T = TypeVar("T")

_PACKAGE = str(Path(__file__).parent.parent)


class Client(Looking):
    """A connection pool to one namespace of one server.

    `max_payload_kb` bounds one task's body, in KiB. `timeout_seconds` bounds each wait for a connection and for
    an answer. `durability`: what an enqueue waits for beyond the server's answer, "none", "wait" (a replica has the
    task) or "waitaof" (it is on disk). Close it, or use it as a context manager, when it is not needed any more.
    """

    def __init__(
        self,
        redis_url: str,
        namespace: str = settings.DEFAULT_NAMESPACE,
        *,
        max_payload_kb: int = settings.DEFAULT_MAX_PAYLOAD_KB,
        timeout_seconds: float = settings.DEFAULT_TIMEOUT_SECONDS,
        durability: Durability = settings.DEFAULT_DURABILITY,
    ) -> None:
        """Connects at the first call. Raises ValueError for a URL or a durability that is none, or InvalidName for a
        namespace that is none."""
        self.namespace = require_name("namespace", namespace)
        self._max_payload_kb = max_payload_kb
        self._store = Store(namespace)
        self._timeout_seconds = positive_seconds(timeout_seconds, "timeout_seconds")
        self._address = parse_address(redis_url)
        self._pool = ClientPool(redis_url, self._timeout_seconds)
        self._access = Access(self._address, self._timeout_seconds, self._pool, self._store)
        self._waiting = Waiting(self._access)
        failover = self._address.sentinels is not None
        awaited = confirmation(level_of(durability), failover=failover, timeout_seconds=self._timeout_seconds)
        self._sender = Sender(self._pool, self._store, self._handle, awaited)
        self._warned: set[str] = set()

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
    def enqueue(self, call: Call[R], /) -> Handle[R]: ...
    @overload
    def enqueue(
        self,
        name: str,
        /,
        *,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        **options: Unpack[CallOptions],
    ) -> Handle[Any]: ...
    def enqueue(
        self,
        what: Call[Any] | str,
        /,
        *positional: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        **options: Unpack[CallOptions],
    ) -> Handle[Any]:
        """Enqueue one call, or a task by its name; `queue` is required for a name not declared in this process.

        Raises InvalidArguments, InvalidName or PayloadTooLarge before anything is sent; Unavailable or
        ServerFull when it was not accepted; Uncertain, which can repeat it exactly, when that is not known, or when
        it was accepted and its durability was not confirmed.
        """
        if positional:
            raise TypeError(why_not_positional(what, positional))
        if isinstance(what, str):
            if not CALL_OPTIONS.issuperset(options):
                raise TypeError(fault_in_call_options(options, "enqueue()"))
            what = Call(what, args, {} if kwargs is None else kwargs, **options)
        elif args or kwargs or options:
            is_call = isinstance(what, Call)
            brought = "a Call brings its arguments and options: give them where it is made"
            raise TypeError(brought if is_call else why_no_call(what))
        return self._sender.send([prepare(what, default_registry, self._max_payload_kb)])[0]

    def enqueue_many(self, calls: Iterable[Call[R]]) -> list[Handle[R]]:
        """Enqueue many calls, in order, some hundreds a round trip. All are checked before any is sent.

        Those with `front=True` go behind the others, last one first, so that they stand in order at the head of a lane.

        Raises as `enqueue`; `accepted` of Unavailable and Uncertain names those taken before.
        """
        if not isinstance(calls, Iterable):
            raise TypeError(f"enqueue_many takes many calls, as [resize.call(7), resize.call(8)], got {calls!r}")
        tasks = [prepare(call, default_registry, self._max_payload_kb) for call in calls]
        order = sending_order(tasks)
        if order is None:
            return self._sender.send(tasks)
        handles = dict(zip(order, self._sender.send([tasks[at] for at in order]), strict=True))
        return [handles[at] for at in range(len(tasks))]

    def execute_later(self, queue: str, name: str, args: Sequence[Any], delay: float = 0) -> str:
        """The classic call: enqueue a task by name, due `delay` seconds from now; returns its id."""
        return self.enqueue(name, args=args, queue=queue, delay=delay).id

    # Consuming

    def consumer(
        self, queue: str, *more: str, limit: int = 1, lease_seconds: Duration = settings.DEFAULT_LEASE_SECONDS
    ) -> "Consumer":
        """Take tasks of these queues in this process, at most `limit` (up to 500) at a time: see `Consumer`.

        What it holds goes elsewhere when it was stopped, or cut off from the server, for `lease_seconds` (at least 1).
        Raises InvalidName, TypeError or ValueError; Unavailable or Uncertain when it cannot be registered.
        """
        # Imported only here: it brings what a program that only enqueues does without.
        from rota.client.consumer import Consumer, Lines, terms_of  # noqa: PLC0415

        terms = terms_of((queue, *more), limit, lease_seconds, self._max_payload_kb * KIB)
        return Consumer(Lines(self._store, self._run, self._address, self._timeout_seconds), terms)

    @property
    def schedules(self) -> "Schedules":
        """What is enqueued periodically, to be looked at and steered: see `Schedules`."""
        from rota.client.schedules import Schedules  # noqa: PLC0415 - as above

        return Schedules(self, self._run, self._max_payload_kb)

    # Waiting

    def wait(self, task_id: str, timeout: Duration | None = None) -> TaskStatus:
        """Wait until a task has ended, however that may be, and return its status: `unknown` when nothing is known of
        it (any more). It waits on while the server is away; `timeout` in seconds, None for as long as it takes.

        Raises WaitTimeout, a TimeoutError; InvalidName; or Unavailable when the client is closed meanwhile, or the
        server does not let this user ask.
        """
        return status_of(task_id, self._await(Goal.END, task_id, timeout))

    def wait_started(self, task_id: str, timeout: Duration | None = None) -> TaskStatus:
        """Wait until a worker has the task in hand, or it has ended, and return its status; it may be claimed a little
        before its function is called, and given back without. Waits and raises as `wait`."""
        return status_of(task_id, self._await(Goal.START, task_id, timeout))

    def result(self, task_id: str, timeout: Duration | None = None) -> Any:
        """Wait until a task has ended, and return what its function returned. Waits as `wait`.

        Raises TaskDead (with the `epitaph`), TaskCancelled or TaskExpired; ResultNotStored, saying why, when it is done
        and there is no result; and as `wait`.
        """
        found = self._await(Goal.RESULT, task_id, timeout)
        return result_of(status_of(task_id, found), found.result)

    def _await(self, goal: Goal, task_id: str, timeout: Duration | None) -> TaskState:
        require_name("id", task_id)
        if (interceptor := interception.interceptor) is not None:
            return interceptor.wait(self.namespace, WaitQuestion(goal, task_id))
        if self._waiting.pid != os.getpid():
            self._waiting = Waiting(self._access)
        return self._waiting.wait(WaitQuestion(goal, task_id), timeout)

    # Steering

    def cancel(self, task_id: str, kill_after: Duration | None = None) -> CancelWord:
        """End a task that waits (`cancelled`), have `rota.Cancelled` raised in one that runs (`running`); or say that
        it is dead or unknown.

        `kill_after`: so long after it was told its process is killed if it still runs. Raises InvalidName, ValueError
        for a time that is none, Unavailable or Uncertain.
        """
        require_name("id", task_id)
        kill_after_ms = None if kill_after is None else positive_milliseconds(kill_after, "kill_after")
        return self._run(self._store.cancel(task_id, kill_after_ms), [task_id])

    def pause(self, queue: str) -> bool:
        """Have no worker claim from the queue; False when it was paused already. Raises as `cancel`."""
        check_queue(queue)
        return bool(self._run(self._store.pause(queue)))

    def resume(self, queue: str) -> bool:
        """Have workers claim from the queue again; False when it was not paused. Raises as `cancel`."""
        check_queue(queue)
        return bool(self._run(self._store.resume(queue)))

    def revive(self, task_id: str) -> bool:
        """Put a dead task back in its lane, its failures forgiven; False when it is not dead. Raises as `cancel`."""
        require_name("id", task_id)
        return bool(self._run(self._store.revive([task_id]), [task_id]))

    def _run(self, command: Command[T], ids: Sequence[str] = ()) -> T:
        """Send a command, once: without a nonce a second time would be a second call.

        Raises Unavailable, or Uncertain when no answer came.
        """
        if (interceptor := interception.interceptor) is not None:
            return interceptor.run(self.namespace, command)
        with time_limit_deferred:
            [answer] = self._pool.exchange([command])
        match answer:
            case Answered(value):
                return value
            case NotAccepted(error):
                raise error
            case Unanswered(why) | Unconfirmed(why):
                raise Uncertain(f"{why}; it may have been carried out", ids)
            case _:
                assert_never(answer)

    def _handle(self, task: NewTask, word: Enqueued) -> Handle[Any]:
        if word.unserved:
            self._warn_once(
                f"no running fleet serves queue {task.queue!r}: its tasks wait until one does "
                "(is it in `tiers` of rota.toml, and the fleet running?)",
                UnservedQueue,
            )
        elif word.unseen:
            self._warn_once(
                f"no fleet was ever seen in namespace {self.namespace!r} on {self._address.place}: tasks wait until "
                "one is started there (are these `namespace` and `redis_url` of its rota.toml?)",
                UnseenNamespace,
            )
        return Handle(word.holder or task.id, word.duplicate, self)

    def _warn_once(self, message: str, category: type[RotaWarning]) -> None:
        if message not in self._warned:
            self._warned.add(message)
            warnings.warn(message, category, stacklevel=_frames_of_ours())


def _frames_of_ours() -> int:
    # A warning should name the application's line, however many of our frames the call went through.
    level = 0
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
        level += 1
    return level
