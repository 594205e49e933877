"""What a service manager is told, in systemd's protocol: ready, reloading, stopping, how it goes, and that we live.

1. `news` says, from two pictures of the fleet, which messages a change calls for. Pure, as `in_words` is.
2. The notifier looks in each step of the master's loop, so that the signs of life end with a loop that is stuck.
3. Messages are datagrams to $NOTIFY_SOCKET. Sending them neither blocks nor fails: what finds no room is sent later.
"""

import contextlib
import math
import os
import socket
import time
from collections import deque
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass
from typing import Final

from rota_supervisor.exits import Failure
from rota_supervisor.layout import TICK_SECONDS, Role
from rota_supervisor.master.children.child import State
from rota_supervisor.master.planning.backoff import Standing
from rota_supervisor.master.planning.targets import Stage, worker_counts
from rota_supervisor.master.records import Records
from rota_supervisor.master.redis_watch import RedisWatch

STATUS_SECONDS: Final = 1.0
# While the fleet starts, reloads or stops it has deadlines of its own, which the manager's do not know.
PATIENCE_SECONDS: Final = 30
_ASK_PATIENCE_SECONDS: Final = 10.0
_AT_WORK: Final = frozenset({State.READY, State.DRAINING})
_MICROSECONDS: Final = 1_000_000
_MOST_WAITING: Final = 64  # messages for a manager that does not read: a later READY makes up for those before it


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


def news(before: Picture, after: Picture, pid: int, monotonic_us: int) -> list[str]:
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
    begun = [f"RELOADING=1\nMONOTONIC_USEC={monotonic_us}"] if asked else []
    is_over = not after.changing and (asked or before.changing)
    return [*begun, "READY=1"] if is_over else begun


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


class NotifySocket:
    """A manager's socket. `is_there`: whether there is one. `watchdog_seconds`: the longest silence the manager bears,
    0 for any."""

    def __init__(self, address: str, watchdog_seconds: float = 0.0) -> None:
        self.is_there = address.startswith(("/", "@"))
        self.watchdog_seconds = watchdog_seconds if self.is_there else 0.0
        self._address = f"\0{address[1:]}" if address.startswith("@") else address  # abstract, as Linux has it
        self._waiting: deque[bytes] = deque(maxlen=_MOST_WAITING)

    @classmethod
    def take(cls, environment: MutableMapping[str, str], pid: int) -> "NotifySocket":
        """What the environment says, taken out of it: nobody whom we start is to speak for us."""
        address = environment.pop("NOTIFY_SOCKET", "")
        microseconds = environment.pop("WATCHDOG_USEC", "")
        meant = environment.pop("WATCHDOG_PID", "") in ("", str(pid))
        seconds = int(microseconds) / _MICROSECONDS if meant and microseconds.isdecimal() else 0.0
        return cls(address, seconds)

    @property
    def has_room(self) -> bool:
        """Whether everything before has been sent."""
        return not self._waiting

    def send(self, message: str) -> None:
        """Send it, after what waits already."""
        if self.is_there:
            self._waiting.append(message.encode())
            self.flush()

    def send_status(self, text: str) -> None:
        """Send a line for people."""
        self.send(f"STATUS={' '.join(text.split())}")

    @contextlib.contextmanager
    def told_of_failure(self) -> Iterator[None]:
        """Say why, when what is done inside cannot be done. The Failure goes on."""
        try:
            yield
        except Failure as failure:
            self.send_status(str(failure))
            raise

    def flush(self) -> None:
        """Send what can be sent now. What cannot be sent ever, as the manager has left, is forgotten."""
        try:
            sending = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        except OSError:  # no descriptor is left: later
            return
        with sending:
            while self._waiting:
                with contextlib.suppress(OSError):
                    try:
                        sending.sendto(self._waiting[0], self._address)
                    except BlockingIOError:
                        return
                self._waiting.popleft()


class Notifier:
    """Tells the manager what has changed since it was told last."""

    def __init__(self, records: Records, redis: RedisWatch, manager: NotifySocket) -> None:
        self._records = records
        self._redis = redis
        self._manager = manager
        self._told = Picture()
        self._status = ""
        self._status_at = self._alive_at = self._patience_at = -math.inf

    def show(self, now: float) -> None:
        """Tell what there is to tell at `now`, seconds of the master's clock."""
        manager = self._manager
        if not manager.is_there:
            return
        if not manager.has_room:
            manager.flush()
        picture = self._picture()
        for message in news(self._told, picture, os.getpid(), time.monotonic_ns() // 1000):
            manager.send(message)
            self._patience_at = -math.inf  # what begins now has a time limit of its own
        self._told = picture
        if manager.has_room:
            self._show_life(now)
            self._ask_patience(picture, now)
            self._show_status(picture, now)

    def _picture(self) -> Picture:
        reloading = self._records.reloading
        rollout = reloading.rollout
        return Picture(
            works=rollout.current is not None,
            reloads=reloading.asked,
            changing=rollout.candidate is not None,
            stopping=self._records.stop.stage is not Stage.RUNNING,
        )

    def _show_life(self, now: float) -> None:
        seconds = self._manager.watchdog_seconds
        # Half of the silence it bears, less a tick, as the next look may be so far away.
        if seconds and now - self._alive_at >= max(seconds / 2 - TICK_SECONDS, seconds / 4):
            self._alive_at = now
            self._manager.send("WATCHDOG=1")

    def _ask_patience(self, picture: Picture, now: float) -> None:
        if picture.takes_time and now - self._patience_at >= _ASK_PATIENCE_SECONDS:
            self._patience_at = now
            self._manager.send(f"EXTEND_TIMEOUT_USEC={PATIENCE_SECONDS * _MICROSECONDS}")

    def _show_status(self, picture: Picture, now: float) -> None:
        if now - self._status_at < STATUS_SECONDS:
            return
        self._status_at = now
        status = in_words(picture, self._figures(), self._remarks())
        if status != self._status:
            self._status = status
            self._manager.send_status(status)

    def _figures(self) -> Figures:
        reloading = self._records.reloading
        rollout = reloading.rollout
        at_work = [child for child in self._records.fleet.of(Role.WORKER) if child.state in _AT_WORK]
        return Figures(
            desired=sum(worker_counts(rollout, reloading.scaling).values()),
            ready=len(at_work),
            busy=sum(child.busy for child in at_work),
            generation=rollout.in_force.number,
            loading=rollout.candidate.number if rollout.candidate is not None else 0,
        )

    def _remarks(self) -> list[str]:
        records = self._records
        standings = {held.state for held in records.held}
        remarks = {
            "quiet": records.quiet.asked,
            "backing off": Standing.BACKOFF in standings,
            "starts keep failing": Standing.FATAL in standings,
            "Redis is away": self._redis.up is False,
        }
        return [remark for remark, holds in remarks.items() if holds]
