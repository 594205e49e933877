"""The outcome of a command, and the value, error or warning that the caller gets for it. The blocking and the asyncio
client share this module.

A command has one of three outcomes, which a caller must treat differently: the server replied, the server refused (so
the command was not carried out), or the command was sent and no reply came.
"""

import inspect
import time
import warnings
from asyncio.events import _get_running_loop
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar, assert_never

from rota.durations import Backoff
from rota.errors import (
    BlockingCall,
    RotaError,
    RotaWarning,
    ServerFull,
    Unavailable,
    UnknownTask,
    UnseenNamespace,
    UnservedQueue,
)
from rota.foreign_names import nearest
from rota.protocol.new_tasks import Enqueued, NewTask
from rota.protocol.scripts import ScriptCall, Steps, execute
from rota.protocol.store import Store
from rota.server.logins import URL_SETTING, LoginUnknown
from rota.server.server_errors import (
    ConnectionLost,
    PushedBack,
    Refused,
    ServerError,
    TlsFault,
    read_reply,
    wants_password,
)
from rota.server.session import Confirmation

if TYPE_CHECKING:
    from rota.client.aio.handles import AsyncHandle
    from rota.client.blocking.handles import Handle

_FIRST_PAUSE_SECONDS: Final = 0.01
_LONGEST_PAUSE_SECONDS: Final = 0.25
_DENIALS: Final = ("noperm", "noauth", "wrongpass")
# The texts with which Valkey and Redis report that a script lacks a permission.
_IN_SCRIPTS: Final = ("ACL failure in script", "The user executing the script can't")
_NOT_REPEATABLE: Final = "only an enqueue can be repeated exactly, and only by the process that sent it"
_MADE_BY_ASYNC_CLIENT: Final = "an AsyncClient made this call: use `await error.arepeat()`"
_MADE_BY_CLIENT: Final = "a blocking client made this call: use `error.repeat()`"


class Denied(Unavailable):
    """Raised if the server does not permit this user to run the command. A retry will fail too, until somebody grants
    the permission."""


def unavailable(message: str, error: Exception) -> Unavailable:
    """Return an error with this message: Denied if a permission or a password is missing, and otherwise Unavailable."""
    return Denied(message) if is_denial(error) else Unavailable(message)


def is_denial(error: Exception) -> bool:
    """Whether an error means that a permission or a password is missing."""
    if isinstance(error, Denied) or (isinstance(error, ServerError) and error.reason in _DENIALS):
        return True
    return any(words in str(error) for words in _IN_SCRIPTS)


class Uncertain(RotaError, TimeoutError):
    """Raised if a call was sent but no reply came, so that the call may have been carried out. It is also raised if the
    call was carried out, but the durability that the client requests was not confirmed in time. In that case, the
    message states what is missing.

    `ids` are the tasks that may or may not have been accepted, and `id` is the first of them. `accepted` lists the ids
    of those tasks of an `enqueue_many` that the server has certainly accepted. Tasks that are in neither `ids` nor
    `accepted` were not sent.

    `repeat` sends the same enqueue again, and the server adds only what it has not added yet. A new enqueue with the
    same id is not as safe: it adds nothing while the first copy is live, but adds a second copy if the first one has
    ended in the meantime.

    If an await of `AsyncClient` is cancelled, the cause of the CancelledError shows whether the call was sent. If it
    was, the cause is this error, which `Uncertain.behind` returns. If it was not, the cause is Unavailable.
    """

    def __init__(
        self,
        message: str,
        ids: Sequence[str] = (),
        accepted: Sequence[str] = (),
        again: "Callable[[], list[Handle[Any]]] | None" = None,
        aagain: "Callable[[], Awaitable[list[AsyncHandle[Any]]]] | None" = None,
    ) -> None:
        super().__init__(message)
        self.ids = tuple(ids)
        self.accepted = tuple(accepted)
        self._again = again
        self._aagain = aagain

    def __reduce__(self) -> tuple[type["Uncertain"], tuple[str, tuple[str, ...], tuple[str, ...]]]:
        # A pickled error cannot repeat its call, because the connections cannot be pickled.
        return type(self), (str(self), self.ids, self.accepted)

    def repeat(self) -> "list[Handle[Any]]":
        """Send the enqueue of `ids` again, and return the handles.

        Tasks that the server has accepted are not added twice.

        Raises:
            Uncertain: If no reply came this time either, or if the call was first sent more than 50 s ago (the server
                remembers it for 60 s).
            Unavailable, GroupEnded: If the call enqueued a group, and the rest of its members could not be added.
            ValueError: If the call was not an enqueue, was made in another process, or was made by an AsyncClient.
        """
        if self._again is None:
            raise ValueError(_NOT_REPEATABLE if self._aagain is None else _MADE_BY_ASYNC_CLIENT)
        return self._again()

    async def arepeat(self) -> "list[AsyncHandle[Any]]":
        """Send an enqueue of `AsyncClient` again, in the event loop from which it was first sent.

        See `repeat`, which raises the same errors.
        """
        if self._aagain is None:
            raise ValueError(_NOT_REPEATABLE if self._again is None else _MADE_BY_CLIENT)
        return await self._aagain()

    @classmethod
    def behind(cls, error: BaseException | None) -> "Uncertain | None":
        """Return the Uncertain among the causes of `error`, which is a CancelledError, or a TimeoutError from
        `asyncio.timeout`.

        Returns None if there is no Uncertain among them, which means that nothing was sent.
        """
        while error is not None and not isinstance(error, cls):
            error = error.__cause__
        return error

    @property
    def id(self) -> str:
        """The id of the first task that may or may not have been accepted, or "" if there is none."""
        return self.ids[0] if self.ids else ""


_PACKAGE = str(Path(__file__).parent.parent)


class ClientWarnings:
    """The warnings that one client issues about the server at `address`. Each warning is issued only once, for example
    once for each queue that no fleet serves."""

    def __init__(self, namespace: str, address: str) -> None:
        self._namespace = namespace
        self._address = address
        self._issued: set[tuple[type[RotaWarning], str]] = set()
        self._names: set[str] = set()
        self.to_check: list[str] = []  # Task names that have not been checked yet.

    def check_reply(self, task: NewTask, reply: Enqueued) -> None:
        """Warn if the server accepted a task but reported a problem, for example that no fleet serves the task's queue.

        If this process does not declare the task, the task's name is stored, so that it can be checked later.
        """
        if task.foreign and task.foreign not in self._names:
            self._names.add(task.foreign)
            self.to_check.append(task.foreign)
        if reply.unserved and self._is_new(UnservedQueue, task.queue):
            self._warn(
                UnservedQueue,
                f"no running fleet serves queue {task.queue!r}, so its tasks wait until one does "
                "(is the fleet running, and is the queue listed in `tiers` of its rota.toml?)",
                task.queue,
            )
        elif reply.unseen and self._is_new(UnseenNamespace):
            self._warn(
                UnseenNamespace,
                f"no fleet has ever run in namespace {self._namespace!r} on {self._address}, so tasks wait until "
                "one is started there (does its rota.toml have the same `namespace` and `redis_url`?)",
            )

    def names_to_check(self) -> list[str]:
        """Return the stored task names, which still have to be checked, and forget them, so that the next call returns
        only later ones."""
        names = self.to_check
        self.to_check = []
        return names

    def check_names(self, names: Sequence[str], known: frozenset[str] | None) -> None:
        """Warn about names that no fleet declares. `known` has the names that the fleets declare, or is None if these
        could not be determined."""
        for name in names:
            if known is not None and name not in known:
                near = nearest(name, known)
                self._warn(
                    UnknownTask,
                    f"no running fleet has a task named {name!r}{near or ':'} tasks with this name become dead as "
                    "soon as workers claim them (is the module that declares the task listed in `imports` of "
                    "rota.toml?)",
                    name,
                )

    def check_blocking(self) -> None:
        """Warn if this thread runs an event loop, because a blocking call would block the loop."""
        if _get_running_loop() is not None and self._is_new(BlockingCall):
            self._warn(
                BlockingCall,
                "a call of rota.Client blocks the event loop of this thread while it waits for the server: use "
                "`await task.aenqueue(...)` or `rota.AsyncClient` instead",
            )

    def _is_new(self, category: type[RotaWarning], of: str = "") -> bool:
        return (category, of) not in self._issued

    def _warn(self, category: type[RotaWarning], message: str, of: str = "") -> None:
        warnings.warn(message, category, stacklevel=_frames_of_ours())
        # If a filter turns the warning into an error, this line is not reached, so the error is raised each time.
        self._issued.add((category, of))


def known_names(store: Store) -> Steps[frozenset[str] | None]:
    """Return the names of the tasks that fleets declare.

    Returns None if no fleet runs, if a fleet does not report its tasks, or if a consumer runs, because a consumer may
    take any task.
    """
    nodes = [node.tasks for node in (yield from execute(store.nodes())) if node.is_alive]
    named = [tasks for tasks in nodes if tasks is not None]
    if not nodes or len(named) < len(nodes) or (yield from execute(store.consumers())).total:
        return None
    return frozenset().union(*named)


def _frames_of_ours() -> int:
    # A warning should point to the application's line, no matter how many frames of Rota are in between.
    level = 0
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
        level += 1
    return level


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Replied(Generic[T]):
    """The command was carried out."""

    value: T


@dataclass(frozen=True, slots=True)
class NotAccepted:
    """The server replied that it did not carry out the command."""

    error: Unavailable
    is_redirected: bool = False  # whether a cluster will carry it out when it is sent again


@dataclass(frozen=True, slots=True)
class NotReplied:
    """After the command was sent, the connection was lost, or no reply came for too long."""

    why: str


@dataclass(frozen=True, slots=True)
class NotConfirmed:
    """The command was carried out, but its durability was not confirmed in time."""

    why: str


Reply = Replied[T] | NotAccepted | NotReplied | NotConfirmed
WHOLE: Final = 1.0


class Exchange(NamedTuple, Generic[T]):
    """Commands that are sent one after another, as a pipeline, without waiting for the reply to each. Each command is
    sent as soon as it is packed."""

    commands: Iterable[ScriptCall[T]]
    confirmation: Confirmation | None  # The durability to wait for after the commands, or None.
    deadline: float  # When the exchange, including connecting, must have ended (monotonic seconds).
    # The share of the time after connecting that may be spent on waiting for replies. The rest is left for sending the
    # commands again.
    share: float = WHOLE


class Redirections:
    """Decides which commands of an exchange are sent again because a cluster redirected them, and when. This happens
    while the hash slot of the namespace is moved to another node, and after that or after a failover."""

    def __init__(self, exchange: Exchange[Any], *, has_failover: bool) -> None:
        """`has_failover` is whether the next connection may go to another server."""
        self._deadline = exchange.deadline
        self._has_failover = has_failover
        self._backoff = Backoff(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)

    def pause_before(self, replies: Sequence[Reply[Any]]) -> float | None:
        """Return for how many seconds to wait before the redirected commands are sent again, or None if none is to be
        sent."""
        if not self._has_failover or not redirected(replies):
            return None
        seconds = self._backoff.next_seconds()
        return seconds if time.monotonic() + seconds < self._deadline else None


def redirected(replies: Sequence[Reply[Any]]) -> list[int]:
    """Return the positions of the commands that a cluster redirected."""
    return [n for n, reply in enumerate(replies) if isinstance(reply, NotAccepted) and reply.is_redirected]


def not_sent_again(error: Unavailable, *, is_over: bool = False) -> NotAccepted:
    """Return the outcome of a redirected command that could not be sent again because of this error. It is sent later,
    unless the server does not let the client in, or `is_over`, because the client was closed."""
    return NotAccepted(error, is_redirected=not (is_over or is_denial(error)))


def value_of(reply: Reply[T], ids: Sequence[str] = ()) -> T:
    """Return the value of a reply.

    Raises Unavailable if the command was refused. Raises Uncertain, with `ids` as the tasks in doubt, if it is not
    known whether the command was carried out.
    """
    match reply:
        case Replied(value):
            return value
        case NotAccepted(error):
            raise error
        case NotReplied(why) | NotConfirmed(why):
            raise Uncertain(f"{why}; the call may have been carried out", ids)
        case _:
            assert_never(reply)


class ReplyReader:
    """Turns a raw reply, or the error that came instead of a reply, into a `Reply`. `shown` is the name of the server
    in error messages."""

    def __init__(self, shown: str, credentials_in: str = URL_SETTING) -> None:
        """Store two texts for error messages: the server's name, and the name of the setting that contains the user and
        the password (`credentials_in`)."""
        self._shown = shown
        self._credentials_in = credentials_in

    def read(self, command: ScriptCall[T], raw: object) -> Reply[T]:
        """Turn a raw reply into the outcome of the command."""
        if not isinstance(raw, ServerError):
            try:
                return Replied(read_reply(command, raw))
            except Refused as error:
                return NotReplied(f"{self._shown} sent an unexpected reply: {error}")
        if raw.reason == "oom":
            full = f"{self._shown} accepts no more tasks, because its memory is full ({raw})"
            return NotAccepted(
                ServerFull(f"{full}: raise the server's maxmemory, or let the fleet process the waiting tasks")
            )
        if raw.is_reply:
            return NotAccepted(unavailable(f"{self._shown} refused: {self._why(raw)}", raw), raw.is_redirection)
        return NotReplied(f"{self._shown} did not reply: {raw}")

    def confirmed(self, replies: list[Reply[T]], wanted: Confirmation, raw: object) -> list[Reply[T]]:
        """Return the replies, corrected by `raw`, which is the reply to the WAIT or WAITAOF that followed the commands.
        If `raw` does not confirm the durability, each Replied becomes NotConfirmed. If the connection was lost, each
        Replied becomes NotReplied."""
        # The connection was lost. NotReplied makes the sender repeat the enqueues.
        if isinstance(raw, ServerError) and not raw.is_reply:
            lost = NotReplied(f"{self._shown} did not confirm that the tasks are durable: {raw}")
            return [lost if isinstance(reply, Replied) else reply for reply in replies]
        lack = f"the server reported {self._why(raw)}" if isinstance(raw, ServerError) else wanted.lack(raw)
        if not lack:
            return replies
        why = (
            f"{self._shown} has accepted the tasks but has not confirmed that they are durable: after "
            f"{wanted.seconds:g} s, {lack} (durability = {wanted.durability!r})"
        )
        return [NotConfirmed(why) if isinstance(reply, Replied) else reply for reply in replies]

    def no_connection(self, error: Exception) -> Unavailable:
        """Return the error for a call that was not sent because there was no connection."""
        server = f"{'Redis at ' * (self._credentials_in == URL_SETTING)}{self._shown}"
        return unavailable(f"{server} {self._why_no_connection(error)}", error)

    def _why_no_connection(self, error: Exception) -> str:
        text = str(error)
        if wants_password(text):
            return self._why(error).removeprefix("it ")
        if isinstance(error, ServerError) and error.refuses_login:
            return f"refuses the user or the password: {self._why(error)}"
        if isinstance(error, PushedBack):
            return f"refuses commands for now ({text}): try again when the server has recovered"
        if isinstance(error, LoginUnknown):
            return f"cannot be used: {text}"
        if not isinstance(error, ConnectionLost) or error.reason == "readonly":
            return f"cannot be used: {self._why(error)}"
        why = text.removeprefix(_NO_CONNECTION)
        address, _, rest = why.partition(": ")
        why = rest if rest and address in self._shown else why
        return f"is not reachable: {why}{self._advice(error)}"

    def _advice(self, error: ConnectionLost) -> str:
        """Return advice to append to the error about a server that cannot be reached, or "" if there is none."""
        if isinstance(error, TlsFault) or self._credentials_in != URL_SETTING:
            return ""
        if str(error).startswith(_NO_CONNECTION):
            return _START_IT
        return _PERHAPS_TLS if str(error).startswith(_ENDED) else ""

    def never_confirms(self, wanted: Confirmation, error: Exception) -> Unavailable:
        """Return the error for a server that refuses WAIT or WAITAOF, so that it cannot provide the durability that the
        client is set to."""
        needs = "" if is_denial(error) else _NEEDS
        what = f"{self._shown} cannot provide durability = {wanted.durability!r}"
        return Unavailable(f"{what}: {self._why(error)}{needs}")

    def _why(self, error: Exception) -> str:
        text = str(error).removeprefix("ERR ")
        if wants_password(text):
            return f"it needs a password: {_IN_URL if self._credentials_in == URL_SETTING else self._in_client()}"
        if is_denial(error):
            return (
                f"{text.rstrip('.')}: check the user and the password in {self._credentials_in}, and the "
                "permissions (ACL) of that user on the server"
            )
        what = "redis_url (or ROTA_REDIS_URL)" if self._credentials_in == URL_SETTING else self._credentials_in
        advice = next((advice for known, advice in _ADVICE.items() if known in text), "")
        return f"{text.rstrip('.')}: {advice.format(what)}" if advice else text

    def _in_client(self) -> str:
        return f"create {self._credentials_in} with a password"


_NO_CONNECTION: Final = "no connection to "  # the beginning of the error if no connection could be made
_START_IT: Final = ": start the server, or set redis_url (or ROTA_REDIS_URL) to the right address"
# These errors occur only on an open connection, so a server is running at this address.
_ENDED: Final = ("the connection broke", "the server closed the connection")
_PERHAPS_TLS: Final = ": if the server requires TLS, begin redis_url with rediss://"
_SLOT_MOVES: Final = "the hash slot of the namespace is being moved to another node, so try again when that is done"
_ADVICE: Final = {
    "READONLY": "set {} to the primary of this replica",
    "MOVED": "the server is a node of a cluster, so begin redis_url with redis+cluster://, or pass a RedisCluster",
    "TRYAGAIN": _SLOT_MOVES,
    "ASK": _SLOT_MOVES,
    "DB index is out of range": "use a lower database number in {}, usually 0 to 15",
}
_NEEDS: Final = " (waitaof requires Redis or Valkey 7.2 or later, and `appendonly yes`)"
_IN_URL: Final = (
    "put it into redis_url (or ROTA_REDIS_URL), as in redis://:PASSWORD@HOST:PORT/0. If there is a user, write it "
    "before the colon"
)
