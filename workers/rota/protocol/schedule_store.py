"""Schedules as Redis keeps them: what is known of each, and the transitions that move it.

A record is a line of state and, behind it, what the schedule says: see `rota/lua/shared/schedules.lua`. The second part
is text here; `rota.schedules` reads it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from rota.durations import MICROSECONDS
from rota.protocol.command import Command, Raw, Transitions, Word, word_of, words_of
from rota.protocol.wire import Arg, pack, text_of

OCCURRENCES_A_CALL: Final = 100
SCHEDULES_A_CALL: Final = 100
SCHEDULES_A_PAGE: Final = 500
_TIME: Final = rb"(\d{1,16})"  # as DIGITS in lua/shared/numbers.lua
_STATE: Final = re.compile(
    _TIME + b" " + _TIME + rb" (\d{1,16}|-) " + _TIME + b" " + _TIME + rb" (\d{1,16}(?:,\d{1,16})*|-)"
)
_NEVER = b"+inf"


@dataclass(frozen=True, slots=True)
class Record:
    """What is known of a schedule. Times are Unix time in microseconds.

    `passed_us`: all occurrences up to here are dealt with. `last_us`: the last one whose time had come, 0 for none.
    `next_us`: the first behind `passed_us`; 0 when nobody has reckoned it yet, None when there is none. `paused_us`:
    since when it is paused, 0 when it is not. `rank_us`: since when a node says so, 0 when a client put it. `ahead_us`:
    those that were enqueued before their time. `text`: what it says.
    """

    passed_us: int
    last_us: int
    next_us: int | None
    paused_us: int
    rank_us: int
    ahead_us: tuple[int, ...]
    text: bytes

    def to_bytes(self) -> bytes:
        """As it stands in Redis."""
        following = "-" if self.next_us is None else self.next_us
        ahead = ",".join(map(str, self.ahead_us)) or "-"
        state = (self.passed_us, self.last_us, following, self.paused_us, self.rank_us, ahead)
        return b" ".join(str(part).encode() for part in state) + b"\n" + self.text

    @property
    def look_at(self) -> Arg:
        """When a poller is to look at it."""
        return _NEVER if self.paused_us or self.next_us is None else self.next_us


def read_record(raw: bytes) -> Record:
    """Read what stands under a schedule's name. Raises ValueError for what no script has written."""
    state, _, text = raw.partition(b"\n")
    found = _STATE.fullmatch(state)
    if found is None:
        raise ValueError("not a schedule: its state cannot be read")
    passed, last, following, paused, rank, ahead = found.groups()
    return Record(
        int(passed),
        int(last),
        None if following == b"-" else int(following),
        int(paused),
        int(rank),
        () if ahead == b"-" else tuple(map(int, ahead.split(b","))),
        text,
    )


def occurrence_id(name: str, at_us: int) -> str:
    """The id of the task that is enqueued for an occurrence: the schedule's name and the time, in Unix seconds."""
    seconds, rest = divmod(at_us, MICROSECONDS)
    return f"{name}:{seconds}.{rest:06}".rstrip("0") if rest else f"{name}:{seconds}"


class Declared(NamedTuple):
    """A schedule that a node's code or configuration has; `age_seconds`: for how long it has said so."""

    name: str
    text: bytes
    age_seconds: float = 0.0


class NewOccurrence(NamedTuple):
    """A task to be enqueued for an occurrence."""

    id: str
    due_us: int
    body: bytes


class Kept(NamedTuple):
    """A schedule's name, and what stands under it."""

    name: str
    record: bytes


class Page(NamedTuple):
    """Redis time, how many schedules there are, and some of them."""

    now_us: int
    total: int
    schedules: tuple[Kept, ...]


class DeclareWord(StrEnum):
    """What became of a declaration: it stood there, is new, or changed what stood there; another node has something
    else under that name and began to say so later; a client has put one of that name; or it is no name."""

    KEPT = "kept"
    NEW = "new"
    CHANGED = "changed"
    OLDER = "older"
    CLIENT = "client"
    REFUSED = "refused"


class PutWord(StrEnum):
    """What became of a schedule that a client put. `declared`: a node declares one of that name, nothing was done."""

    NEW = "new"
    SAME = "same"
    CHANGED = "changed"
    DECLARED = "declared"


class RemoveWord(StrEnum):
    """What became of a schedule that was to be removed. `declared`: a node declares it, nothing was done."""

    REMOVED = "removed"
    UNKNOWN = "unknown"
    DECLARED = "declared"


class PauseWord(StrEnum):
    """What a pause or a resume found. `same`: it was so before."""

    PAUSED = "paused"
    RESUMED = "resumed"
    SAME = "same"
    UNKNOWN = "unknown"


class RunWord(StrEnum):
    """What became of an occurrence out of turn. `changed`: the schedule is no longer as it was read: read it again.
    `overlaps`: one before it has not ended, and they may not overlap."""

    OK = "ok"
    CHANGED = "changed"
    OVERLAPS = "overlaps"


def _kept_in(raw: Sequence[Raw]) -> tuple[Kept, ...]:
    return tuple(Kept(text_of(name), record) for name, record in zip(raw[::2], raw[1::2], strict=True))


def _parse_page(raw: Raw) -> Page:
    now, total, found = raw
    return Page(int(now), int(total), _kept_in(found))


def _parse_upcoming(raw: Raw) -> tuple[int, tuple[Kept, ...]]:
    now, found = raw
    return int(now), _kept_in(found)


def _parse_run(raw: Raw) -> tuple[RunWord, str]:
    word, _, other = text_of(raw).partition(" ")
    return RunWord(word), other


class ScheduleStore(Transitions):
    """The transitions of the schedules of one namespace, each as a `Command`: see `rota.protocol.store`."""

    def advance(
        self, kept: Kept, becomes: Record, queue: str, occurrences: Sequence[NewOccurrence], *, may_overlap: bool
    ) -> Command[bool]:
        """Enqueue up to OCCURRENCES_A_CALL occurrences and set what follows; False when the record is no longer `kept`:
        then nothing was done."""
        args: list[Arg] = [kept.name, kept.record, becomes.to_bytes(), becomes.look_at, _overlap(may_overlap), queue]
        for occurrence in occurrences:
            args += occurrence
        return self._command("advance", pack(args), bool)

    def upcoming(self, ahead_us: int, most: int = SCHEDULES_A_CALL) -> Command[tuple[int, tuple[Kept, ...]]]:
        """Redis time, and the schedules that have an occurrence within so many microseconds."""
        return self._command("upcoming", pack((ahead_us, most)), _parse_upcoming)

    def declare(self, ttl_ms: int, declared: Sequence[Declared]) -> Command[list[DeclareWord]]:
        """Say which schedules a node's code and configuration have, up to SCHEDULES_A_CALL."""
        args: list[Arg] = [ttl_ms]
        for name, text, age_seconds in declared:
            args += (name, round(age_seconds * MICROSECONDS), text)
        return self._command("declare", pack(args), words_of(DeclareWord))

    def forget(self, name: str, patience_us: int) -> Command[RemoveWord]:
        """Remove a schedule that no node has declared for so long after the last declaration ran out."""
        return self._word("remove_schedule", RemoveWord, name, patience_us)

    def page(self, offset: int, count: int = SCHEDULES_A_PAGE) -> Command[Page]:
        """Some schedules, those first that are due next."""
        return self._command("schedules", pack((offset, count)), _parse_page)

    def find(self, names: Sequence[str]) -> Command[Page]:
        """Schedules by name, up to SCHEDULES_A_PAGE; those that are not there are left out."""
        return self._command("schedules", pack((0, 0, *names)), _parse_page)

    def put(self, name: str, text: bytes) -> Command[PutWord]:
        """Put a client's schedule, or change it."""
        return self._word("put_schedule", PutWord, name, text)

    def remove(self, name: str) -> Command[RemoveWord]:
        """Remove a client's schedule."""
        return self._word("remove_schedule", RemoveWord, name, "")

    def pause(self, name: str) -> Command[PauseWord]:
        """Stop a schedule."""
        return self._word("pause_schedule", PauseWord, name)

    def resume(self, name: str) -> Command[PauseWord]:
        """Let a schedule go on."""
        return self._word("resume_schedule", PauseWord, name)

    def run(
        self, kept: Kept, queue: str, task_id: str, body: bytes, *, may_overlap: bool
    ) -> Command[tuple[RunWord, str]]:
        """Enqueue an occurrence out of turn; with RunWord.OVERLAPS comes the id that is in the way."""
        args = (kept.name, kept.record, _overlap(may_overlap), task_id, queue, body)
        return self._command("run_schedule", pack(args), _parse_run)

    def _word(self, script: str, words: type[Word], *args: Arg) -> Command[Word]:
        return self._command(script, pack(args), word_of(words))


def _overlap(may_overlap: bool) -> str:
    return "queue" if may_overlap else "skip"
