"""One call of one script, as bytes to send and a reply to read: whoever has a connection runs it."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Generic, Protocol, TypeVar

from rota.protocol.keys import Keys
from rota.protocol.scripts import Script, load_script
from rota.protocol.wire import Packed, command, pack, text_of

T = TypeVar("T")

Raw = Any  # bytes | int | None | list of these, as hiredis reads them


def reply(make: Callable[..., T], *parts: Callable[[Raw], Any]) -> Callable[[Raw], T]:
    """The parser of a list that has one item for each field of a value, read by these in their order."""

    def parse(raw: Raw) -> T:
        return make(*[part(item) for part, item in zip(parts, raw, strict=True)])

    return parse


def names_of(raw: Sequence[Raw]) -> tuple[str, ...]:
    """A list of names."""
    return tuple(map(text_of, raw))


def time_or_none(raw: Raw) -> int | None:
    """Microseconds, or "" for no time."""
    return int(raw) if raw else None


@lru_cache(maxsize=256)  # a process has one key a namespace, and a script for each transition
def _opening(sha: bytes, key: str) -> Packed:
    return pack(("EVALSHA", sha, 1, key))


@dataclass(frozen=True, slots=True)
class Command(Generic[T]):
    """One call of one script."""

    script: Script
    key: str
    args: Packed
    parse: Callable[[Raw], T]

    def by_sha(self) -> bytes:
        """EVALSHA in wire form. The server answers NOSCRIPT when it does not know the script."""
        return command((_opening(self.script.sha, self.key), self.args))

    def by_text(self) -> bytes:
        """EVAL in wire form: what to send after NOSCRIPT. It teaches the server the script as well."""
        return command((pack(("EVAL", self.script.text, 1, self.key)), self.args))


class Transitions:
    """What each part of the typed store is made of: a method a transition. See `rota.protocol.store`."""

    def __init__(self, namespace: str) -> None:
        self.keys = Keys(namespace)

    def _command(self, name: str, args: Packed, parse: Callable[[Raw], T]) -> Command[T]:
        return Command(load_script(name), self.keys.tasks, args, parse)


class RunCommand(Protocol):
    """Runs a command, once, on some connection; raises as that does. Where it is used says from which threads."""

    def __call__(self, command: Command[T], /) -> T: ...


Steps = Generator[Command[Any], Any, T]
"""Commands of which each may depend on the answers before: it yields one, is sent its answer, and returns what follows
from all. `follow` takes them where connections block, `AsyncClient` where they do not."""


class FollowSteps(Protocol):
    """Takes steps one by one, and returns what they return."""

    def __call__(self, steps: Steps[T], /) -> T: ...


def ask(command: Command[T]) -> Steps[T]:
    """One step, for `yield from`, which tells type checkers what comes back."""
    answer: T = yield command
    return answer


def follow(run: RunCommand, steps: Steps[T]) -> T:
    """Take the steps one by one. Raises as `run` does."""
    answer: Any = None
    while True:
        try:
            command = steps.send(answer)
        except StopIteration as end:
            value: T = end.value
            return value
        answer = run(command)
