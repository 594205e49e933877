"""Checks of groups in a fleet's journal: the `then` of each group runs once, after the last member has ended."""

from collections.abc import Iterable, Sequence

import redis

from rota import Call
from support.fleet_readings import Line
from support.waiting import until

FOREVER = -1
MINUTE_MS = 60_000


def notes(label: str, count: int, queue: str = "default") -> list[Call[None]]:
    """Return calls of `count` short tasks, all with this label."""
    return [Call("note", [label], queue=queue) for _ in range(count)]


def after(label: str) -> Call[None]:
    """Return the call that follows a group whose members have this label."""
    return Call("note", [f"after {label}"], queue="default")


def lines_by_group(lines: Iterable[Line]) -> dict[str, list[Line]]:
    """Return the journal's lines by the label of their group. The lines of the follow-up task are included."""
    found: dict[str, list[Line]] = {}
    for line in lines:
        found.setdefault(line.label.removeprefix("after "), []).append(line)
    return found


def check_followed(lines: Sequence[Line], label: str) -> list[Line]:
    """Check that exactly one task followed the group with this label, and that it started after the last member had
    ended. Return the lines of its starts.
    """
    first_ends: dict[str, float] = {}
    for line in lines:
        if (line.event, line.label) == ("end", label):
            first_ends.setdefault(line.id, line.at)
    starts = [line for line in lines if (line.event, line.label) == ("start", f"after {label}")]
    assert len({line.id for line in starts}) == 1, f"{label}: followed by {[line.id for line in starts]}"
    early = max(first_ends.values(), default=0.0) - starts[0].at
    assert early <= 0, f"{label}: followed {early} s too early"
    return starts


def check_followed_once(lines: Sequence[Line], label: str) -> None:
    """Do the checks of `check_followed`. In addition, check that each extra start of the follow-up task followed a
    crash, and that no member started or ended after the follow-up task had started.
    """
    starts = check_followed(lines, label)
    assert len(starts) <= 1 + max(line.crashes for line in starts), f"{label}: followed twice"
    late = [line for line in lines if line.label == label and line.at > starts[0].at]
    assert not late, f"{label}: {late} after the follow-up"


def wait_until_nothing_is_left(client: redis.Redis, namespace: str) -> None:
    """Wait until Redis keeps no data of groups except records that expire within a minute."""

    def left() -> list[bytes]:
        found = client.scan_iter(match=f"{{{namespace}}}:*", count=1000)
        of_groups = [key for key in found if b":group" in key or b":members" in key]
        return [key for key in of_groups if (ttl := client.pttl(key)) == FOREVER or ttl > MINUTE_MS]

    until(lambda: not left(), lambda: f"nothing of groups: {left()}")
