"""What became of a command, and in which words it is told: the same of connections that block and of
asyncio's. Pure.

Three things are told apart for each command, because a caller must do three things: it was answered, it was refused (so
not carried out), or it was sent and nothing came back.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, TypeVar, assert_never

from rota.client.failures import Uncertain, is_denial, unavailable
from rota.errors import ServerFull, Unavailable
from rota.protocol.command import Command
from rota.server.endpoint import URL_SETTING
from rota.server.server_errors import Refused, ServerError, read_reply, wants_password
from rota.server.session import Confirmation

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
            return NotAccepted(ServerFull(f"{self._shown} takes no more tasks, its memory is full: {reply}"))
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
        """Nothing was sent."""
        why = self._why(error).removeprefix("no connection to ")  # from there on a connection says the same
        return unavailable(f"no connection to {self._shown}: {why}", error)

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
            return f"{text}: check user, password and its permissions (ACL) in {self._credentials_in}"
        return text

    def _in_client(self) -> str:
        return f"make {self._credentials_in} with one"


_NEEDS: Final = " (waitaof needs Redis 7.2 or Valkey 7.2, or newer, and `appendonly yes`)"
_IN_URL: Final = (
    "write it in redis_url (or ROTA_REDIS_URL) as redis://:PASSWORD@HOST:PORT/0, with the user before the colon if "
    "there is one"
)
