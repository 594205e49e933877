"""What a service manager is told, in systemd's protocol: ready, reloading, stopping, how it goes, and that we live.

`news` says, from two pictures of the fleet, which messages a change calls for. The messages end with the ticks of the
master, so a manager misses them when the loop is stuck.
"""

from dataclasses import dataclass
from typing import Final

from rota.printable import printable

STATUS_SECONDS: Final = 1.0
# While the fleet starts, reloads or stops it has deadlines of its own, which the manager's do not know.
PATIENCE_SECONDS: Final = 30
ASK_PATIENCE_SECONDS: Final = 10.0
MONOTONIC_US: Final = "{monotonic_us}"  # filled in by whoever sends the message
_MICROSECONDS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Picture:
    """What of a fleet's life concerns its service manager. `works`: the first generation is in service. `reloads`:
    how many reloads and restarts were asked for so far. `changing`: one of them is not over."""

    works: bool = False
    reloads: int = 0
    changing: bool = False
    stopping: bool = False

    @property
    def takes_time(self) -> bool:
        """Whether something is under way that may take longer than the manager would wait."""
        return self.stopping or self.changing or not self.works


def news(before: Picture, after: Picture, pid: int) -> list[str]:
    """The messages that tell of a change, in order.

    A manager that asked for a reload waits for a RELOADING that is no older than its own request, and then for READY,
    whatever has become of the reload. Both are sent for one that was over before anybody looked.
    """
    if after.stopping:
        return [] if before.stopping else ["STOPPING=1"]
    if not after.works:
        return []
    if not before.works:
        # A manager takes a shell that started us for the master. As process 1 we do not know our number out there.
        return ["READY=1" if pid == 1 else f"READY=1\nMAINPID={pid}"]
    asked = after.reloads > before.reloads
    begun = [f"RELOADING=1\nMONOTONIC_USEC={MONOTONIC_US}"] if asked else []
    is_over = not after.changing and (asked or before.changing)
    return [*begun, "READY=1"] if is_over else begun


EXTEND: Final = f"EXTEND_TIMEOUT_USEC={PATIENCE_SECONDS * _MICROSECONDS}"
ALIVE: Final = "WATCHDOG=1"


def status_message(text: str) -> str:
    """A line for people."""
    return f"STATUS={printable(' '.join(text.split()))}"


@dataclass(frozen=True, slots=True)
class Figures:
    """The fleet in numbers. `loading`: the generation that is on its way, 0 for none."""

    desired: int
    ready: int
    busy: int
    generation: int
    loading: int = 0


def in_words(picture: Picture, figures: Figures, remarks: list[str]) -> str:
    """One line for people."""
    if picture.stopping:
        return f"stopping: {figures.ready} workers left, {figures.busy} busy"
    parts = [f"{figures.ready} of {figures.desired} workers", f"{figures.busy} busy"]
    parts.append(f"generation {figures.generation}" if picture.works else "starting")
    if figures.loading and picture.works:
        parts.append(f"generation {figures.loading} on its way")
    return ", ".join([*parts, *remarks])
