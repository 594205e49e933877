"""What people can ask of a master, whoever carries it there: the control socket, a signal, a test."""

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Protocol

Answer = dict[str, object]  # what is written as JSON


class RequestRefused(Exception):
    """A request that cannot be fulfilled: its text says what is wrong and what to do."""


@dataclass(frozen=True, slots=True)
class ScaleOrder:
    """How many workers a pool is to have, or how many more. `pool` is None where there is but one."""

    pool: str | None
    number: int
    is_relative: bool = False


class ControlPort(Protocol):
    """The master as people see it. All calls are made in its loop, return at once, and may raise RequestRefused."""

    def status(self) -> Answer:
        """The fleet as it stands."""

    def reload(self) -> Awaitable[Answer]:
        """Read the configuration again and apply what changed; resolves to what became of it: `result` is
        success or failure, `changes` says what, `faults` why not. Need not be awaited."""

    def preview(self) -> Answer:
        """What a reload would do, and nothing is done."""

    def restart(self) -> Awaitable[Answer]:
        """Reload, and replace every worker by one with freshly imported code. Answers as `reload` does."""

    def scale(self, order: ScaleOrder) -> Answer:
        """Give a pool another number of workers: `pool`, and what it goes `from` and `to`."""

    def quiet(self) -> Answer:
        """Claim nothing more; what runs goes on."""

    def resume(self) -> Answer:
        """Claim again."""

    def stop(self, *, now: bool) -> Answer:
        """Drain and leave, or, `now`, kill everything at once and leave. May be repeated."""
