"""How tasks ended: the account that a worker gives of a run, and the record that the fleet keeps of an end. Pure.

An account is what follows the entry in a record: ` START RUN PID NAME`, and behind a space why the result was not kept,
if it was not. A record is `HOW AT OWNER ENTRY ACCOUNT`, and in lines behind that what is known of the attempts before,
each as a JSON object. Times are whole microseconds, START and AT of Redis time.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

from rota.protocol.entry import FIELDS, Entry, parse_entry
from rota.protocol.wire import shown, text_of

PURGED: Final = "purged"
_HOW: Final = {"done", "cancelled", "expired", PURGED}
_NOBODY: Final = "-"
_LATEST_US: Final = 9_000_000_000_000_000  # as LATEST in lua/shared/clock.lua


class Run(NamedTuple):
    """One run of a task. `start_us` is 0 when it was not begun, or when nobody told of it. `refused`: why what the
    function returned is not kept though that was asked for."""

    start_us: int = 0
    run_us: int = 0
    pid: int = 0
    name: str = ""
    refused: str = ""


def ran_by(pid: int, name: str) -> bytes:
    """The part of an account that is the same for all runs of a task in a process."""
    return b" %d %b" % (pid, name.encode() or _NOBODY.encode())


def account_of(start_us: int, run_us: float, who: bytes, refused: str = "") -> bytes:
    """The account of a run, as a settlement tells it; `who` is from `ran_by`. Each task that ends has one."""
    account = b" %d %d%b" % (start_us, run_us, who)
    return account if not refused else b"%b %b" % (account, " ".join(refused.split()).encode(errors="replace"))


@dataclass(frozen=True, slots=True)
class Ended:
    """One end. `how`: done, cancelled, expired or purged; `owner` "" when the task waited. `earlier`: what is known of
    the attempts before the last, each a JSON object."""

    how: str
    at_us: int
    owner: str
    entry: Entry
    run: Run
    earlier: tuple[bytes, ...] = ()


def parse_ended(record: bytes) -> Ended:
    """Read a record as a script wrote it. Raises ValueError for anything else."""
    first, *earlier = record.split(b"\n")
    how, at_us, owner, *fields = first.split(b" ", 3 + FIELDS)
    entry = parse_entry(b" ".join(fields[:FIELDS]))
    start_us, run_us, pid, name, *refused = text_of(fields[FIELDS]).split(" ", 4)
    run = Run(int(start_us), int(run_us), int(pid), _known(name), "".join(refused))
    ended = Ended(text_of(how), int(at_us), _known(shown(text_of(owner))), entry, run, tuple(earlier))
    if ended.how not in _HOW or not all(0 <= us <= _LATEST_US for us in (ended.at_us, *run[:2], entry.due_us)):
        raise ValueError(f"not the record of an end: {first!r}")
    return ended


def _known(name: str) -> str:
    return "" if name == _NOBODY else name
