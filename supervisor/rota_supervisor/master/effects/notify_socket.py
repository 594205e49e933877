"""Messages to a service manager: datagrams to $NOTIFY_SOCKET. Sending them neither blocks nor fails: what finds no room
is sent later."""

import contextlib
import socket
import time
from collections import deque
from collections.abc import Iterator, MutableMapping
from typing import TYPE_CHECKING, Final

from rota.display_text import printable
from rota_supervisor.exits import Failure

if TYPE_CHECKING:
    from rota_supervisor.master.core.effects import NotifyManager

_RELOADING: Final = "RELOADING=1"
_MICROSECONDS: Final = 1_000_000
_MOST_WAITING: Final = 64  # messages for a manager that does not read: a later READY makes up for those before it


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

    def notify(self, effect: "NotifyManager") -> None:
        """Send it. Beside messages that the manager has not taken yet, those that can wait are left out."""
        if not self.has_room:
            self.flush()
        if self.has_room or not effect.can_wait:
            self.send(effect.message)

    @property
    def has_room(self) -> bool:
        """Whether everything before has been sent."""
        return not self._waiting

    def send(self, message: str) -> None:
        """Send it, after what waits already. RELOADING goes with the time at which it is sent."""
        if self.is_there:
            if message == _RELOADING:
                message += f"\nMONOTONIC_USEC={time.monotonic_ns() // 1000}"
            self._waiting.append(message.encode())
            self.flush()

    def send_status(self, text: str) -> None:
        """Send a line for people."""
        self.send(f"STATUS={printable(' '.join(text.split()))}")

    @contextlib.contextmanager
    def reported_failure(self) -> Iterator[None]:
        """Tell the manager of a Failure that ends the block. It goes on."""
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
