"""What became of a command, and what its caller gets: a value, an error or a warning. For blocking clients and asyncio.

There are three cases for each command, because a caller must do three things: it was answered, it was refused (so not
carried out), or it was sent and no answer came.
"""

import inspect
import warnings
from asyncio.events import _get_running_loop
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar, assert_never

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
from rota.protocol.command import Command, Steps, ask
from rota.protocol.new_tasks import Enqueued, NewTask
from rota.protocol.store import Store
from rota.server.endpoint import URL_SETTING
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

_DENIALS: Final = ("noperm", "noauth", "wrongpass")
_IN_SCRIPTS: Final = ("ACL failure in script", "The user executing the script can't")  # Valkey and Redis
_NOT_REPEATABLE: Final = "only an enqueue can be repeated exactly, and only in the process that made it"


class Denied(Unavailable):
    """The server does not let this user do it, nor will it until a person changes that: waiting does not help."""


def unavailable(message: str, error: Exception) -> Unavailable:
    """What callers are told in these words, when this is what went wrong."""
    return Denied(message) if is_denial(error) else Unavailable(message)


def is_denial(error: Exception) -> bool:
    """Whether it is for want of a permission or a password."""
    if isinstance(error, Denied) or (isinstance(error, ServerError) and error.reason in _DENIALS):
        return True
    return any(words in str(error) for words in _IN_SCRIPTS)


class Uncertain(RotaError, TimeoutError):
    """The call was sent and no answer came: it may have been carried out. Or it was, and what the client's durability
    asks for was not confirmed in time: the message says what is missing.

    `ids` are the tasks in doubt, and `id` the first of them. `accepted`: ids of an `enqueue_many` that the server
    has certainly taken; those in neither were not sent. `repeat` sends an enqueue again, exactly; a new enqueue
    with the same id adds nothing while the first copy lives, but a second copy when that has ended meanwhile.

    An await of `AsyncClient` that is cancelled goes on as CancelledError, and has this as its cause if the call was
    sent, or Unavailable if it was not: see `behind`.
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
        # What `repeat` needs holds connections, which stay in their process.
        return type(self), (str(self), self.ids, self.accepted)

    def repeat(self) -> "list[Handle[Any]]":
        """Send the enqueue of `ids` again; whatever the server took the first time, it does not take again.

        Returns their handles. Raises Uncertain when there is no answer again, or more than 50 s after the call:
        the server knows it for 60 s. Raises ValueError when it was no enqueue, or was made in another process.
        """
        if self._again is None:
            raise ValueError(_NOT_REPEATABLE if self._aagain is None else "it was awaited: `await error.arepeat()`")
        return self._again()

    async def arepeat(self) -> "list[AsyncHandle[Any]]":
        """As `repeat`, of an enqueue of `AsyncClient`, and in the event loop that made it."""
        if self._aagain is None:
            raise ValueError(_NOT_REPEATABLE if self._again is None else "it was not awaited: error.repeat()")
        return await self._aagain()

    @classmethod
    def behind(cls, error: BaseException | None) -> "Uncertain | None":
        """The Uncertain that a CancelledError, or a TimeoutError of `asyncio.timeout`, comes from. None when nothing is
        in doubt: nothing was sent."""
        while error is not None and not isinstance(error, cls):
            error = error.__cause__
        return error

    @property
    def id(self) -> str:
        """The first id in doubt, "" when the call named none."""
        return self.ids[0] if self.ids else ""


_PACKAGE = str(Path(__file__).parent.parent)


class ClientWarnings:
    """The warnings of one client, of the server at `place`. `to_check`: names that were noted, and not checked yet."""

    def __init__(self, namespace: str, place: str) -> None:
        self._namespace = namespace
        self._place = place
        self._given: set[tuple[type[RotaWarning], str]] = set()
        self._names: set[str] = set()
        self.to_check: list[str] = []

    def of_answer(self, task: NewTask, word: Enqueued) -> None:
        """Warn of what the server said of a task that it took, and have its name checked, unless it was before."""
        if task.foreign and task.foreign not in self._names:
            self._names.add(task.foreign)
            self.to_check.append(task.foreign)
        if word.unserved and self._is_new(UnservedQueue, task.queue):
            self._warn(
                UnservedQueue,
                f"no running fleet serves queue {task.queue!r}: its tasks wait until one does "
                "(is it in `tiers` of rota.toml, and the fleet running?)",
                task.queue,
            )
        elif word.unseen and self._is_new(UnseenNamespace):
            self._warn(
                UnseenNamespace,
                f"no fleet was ever seen in namespace {self._namespace!r} on {self._place}: tasks wait until "
                "one is started there (are these `namespace` and `redis_url` of its rota.toml?)",
            )

    def names_to_check(self) -> list[str]:
        """The names that were noted since the last call."""
        names, self.to_check = self.to_check, []
        return names

    def of_names(self, names: Sequence[str], known: frozenset[str] | None) -> None:
        """Warn of names that are not `known` to the fleets; None: nobody can say."""
        for name in names:
            if known is not None and name not in known:
                near = nearest(name, known)
                self._warn(
                    UnknownTask,
                    f"no running fleet has a task named {name!r}{near or ':'} its calls will be dead when workers take "
                    "them (is the module that declares it in `imports` of rota.toml?)",
                    name,
                )

    def of_blocking(self) -> None:
        """Warn when this thread runs an event loop, which a call that blocks holds up."""
        if _get_running_loop() is not None and self._is_new(BlockingCall):
            self._warn(
                BlockingCall,
                "a call of rota.Client waits for the server, and holds up the event loop that runs in this thread: "
                "`await task.aenqueue(...)` and `rota.AsyncClient` do not",
            )

    def _is_new(self, category: type[RotaWarning], of: str = "") -> bool:
        return (category, of) not in self._given

    def _warn(self, category: type[RotaWarning], message: str, of: str = "") -> None:
        warnings.warn(message, category, stacklevel=_frames_of_ours())
        self._given.add((category, of))  # not where it was made an error: that is raised each time


def known_names(store: Store) -> Steps[frozenset[str] | None]:
    """The names of the tasks that fleets declare; None if no fleet runs, one does not say, or a consumer runs, which
    may take any task."""
    nodes = [node.tasks for node in (yield from ask(store.nodes())) if node.is_alive]
    named = [tasks for tasks in nodes if tasks is not None]
    if not nodes or len(named) < len(nodes) or (yield from ask(store.consumers())).total:
        return None
    return frozenset().union(*named)


def _frames_of_ours() -> int:
    # A warning should name the application's line, however many of our frames the call went through.
    level = 0
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
        level += 1
    return level


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Answered(Generic[T]):
    """The command was carried out."""

    value: T


@dataclass(frozen=True, slots=True)
class NotAccepted:
    """The server answered that it did not carry the command out."""

    error: Unavailable


@dataclass(frozen=True, slots=True)
class Unanswered:
    """The connection was lost, or silent for too long, after the command was sent."""

    why: str


@dataclass(frozen=True, slots=True)
class Unconfirmed:
    """The command was carried out, and what its durability asks for was not confirmed in time."""

    why: str


Answer = Answered[T] | NotAccepted | Unanswered | Unconfirmed
WHOLE: Final = 1.0


class Exchange(NamedTuple, Generic[T]):
    """Commands to be sent together, each as soon as it is made. With a `confirmation`, whatever is Answered is
    confirmed too. All is over by the `deadline` (monotonic): a connection may take until then, and the answers the
    `share` of what is left once there is one, so that what got none can be sent again."""

    commands: Iterable[Command[T]]
    confirmation: Confirmation | None
    deadline: float
    share: float = WHOLE


def value_of(answer: Answer[T], ids: Sequence[str] = ()) -> T:
    """The value of an answer. Raises Unavailable; or Uncertain, about these tasks, when it is not known."""
    match answer:
        case Answered(value):
            return value
        case NotAccepted(error):
            raise error
        case Unanswered(why) | Unconfirmed(why):
            raise Uncertain(f"{why}; it may have been carried out", ids)
        case _:
            assert_never(answer)


class Judge:
    """Takes replies, and the errors in their place, for answers of the server that messages call `shown`."""

    def __init__(self, shown: str, credentials_in: str = URL_SETTING) -> None:
        """`credentials_in`: where user and password are, for messages."""
        self._shown = shown
        self._credentials_in = credentials_in

    def judge(self, command: Command[T], reply: object) -> Answer[T]:
        """What became of a command."""
        if not isinstance(reply, ServerError):
            try:
                return Answered(read_reply(command, reply))
            except Refused as error:
                return Unanswered(f"{self._shown} answered something else: {error}")
        if reply.reason == "oom":
            full = f"{self._shown} takes no more tasks, its memory is full ({reply})"
            return NotAccepted(ServerFull(f"{full}: raise its maxmemory, or let the fleet work off what waits"))
        if reply.is_reply:
            return NotAccepted(unavailable(f"{self._shown} refused: {self._why(reply)}", reply))
        return Unanswered(f"{self._shown} did not answer: {reply}")

    def confirmed(self, answers: list[Answer[T]], asked: Confirmation, reply: object) -> list[Answer[T]]:
        """The same answers, in the light of what came to the command that waits for their confirmation."""
        if isinstance(reply, ServerError) and not reply.is_reply:  # sent again, they may be confirmed yet
            lost = Unanswered(f"{self._shown} confirmed nothing: {reply}")
            return [lost if isinstance(answer, Answered) else answer for answer in answers]
        lack = f"the server says {self._why(reply)}" if isinstance(reply, ServerError) else asked.lack(reply)
        if not lack:
            return answers
        why = (
            f"{self._shown} has accepted the tasks and not confirmed them: within {asked.seconds:g} s, {lack} "
            f"(durability = {asked.durability!r})"
        )
        return [Unconfirmed(why) if isinstance(answer, Answered) else answer for answer in answers]

    def no_connection(self, error: Exception) -> Unavailable:
        """Return the error of a call that was not sent, as there was no connection to send it on."""
        server = f"{'Redis at ' * (self._credentials_in == URL_SETTING)}{self._shown}"
        return unavailable(f"{server} {self._why_no_connection(error)}", error)

    def _why_no_connection(self, error: Exception) -> str:
        text = str(error)
        if wants_password(text):
            return self._why(error).removeprefix("it ")
        if isinstance(error, ServerError) and error.refuses_login:
            return f"refuses the user or the password: {self._why(error)}"
        if isinstance(error, PushedBack):
            return f"refuses for now: {text}: try again when it has recovered"
        if not isinstance(error, ConnectionLost):
            return f"cannot be used: {self._why(error)}"
        why = text.removeprefix(_NO_CONNECTION)
        place, _, rest = why.partition(": ")
        why = rest if rest and place in self._shown else why
        is_not_there = text.startswith(_NO_CONNECTION) and not isinstance(error, TlsFault)
        advice = _START_IT if is_not_there and self._credentials_in == URL_SETTING else ""
        return f"is not reachable: {why}{advice}"

    def never_confirms(self, asked: Confirmation, error: Exception) -> Unavailable:
        """The server refused to be asked for a confirmation."""
        needs = "" if is_denial(error) else _NEEDS
        what = f"{self._shown} cannot do what durability = {asked.durability!r} asks for"
        return Unavailable(f"{what}: {self._why(error)}{needs}")

    def _why(self, error: Exception) -> str:
        text = str(error).removeprefix("ERR ")
        if wants_password(text):
            return f"it wants a password: {_IN_URL if self._credentials_in == URL_SETTING else self._in_client()}"
        if is_denial(error):
            return f"{text.rstrip('.')}: check user, password and its permissions (ACL) in {self._credentials_in}"
        return text

    def _in_client(self) -> str:
        return f"make {self._credentials_in} with one"


_NO_CONNECTION: Final = "no connection to "  # how a connection begins the same message
_START_IT: Final = ": start it, or set redis_url (or ROTA_REDIS_URL) to the right place"
_NEEDS: Final = " (waitaof needs Redis 7.2 or Valkey 7.2, or newer, and `appendonly yes`)"
_IN_URL: Final = (
    "write it in redis_url (or ROTA_REDIS_URL) as redis://:PASSWORD@HOST:PORT/0, with the user before the colon if "
    "there is one"
)
