"""Messages to a service manager, as datagrams to $NOTIFY_SOCKET. Sending never blocks and never fails. If the socket
has no room for a message, the message is sent later."""

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
_MAX_WAITING: Final = 64  # maximum number of unsent messages; the oldest are dropped


class NotifySocket:
    """The socket of a service manager.

    `is_there`: whether there is a manager. `watchdog_seconds`: how long the manager waits for a sign of life before it
    stops the master, or 0 if it waits forever.
    """

    def __init__(self, address: str, watchdog_seconds: float = 0.0) -> None:
        self.is_there = address.startswith(("/", "@"))
        self.watchdog_seconds = watchdog_seconds if self.is_there else 0.0
        # A leading @ denotes an abstract Linux socket.
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._waiting: deque[bytes] = deque(maxlen=_MAX_WAITING)

    @classmethod
    def take(cls, environment: MutableMapping[str, str], pid: int) -> "NotifySocket":
        """Return the socket that the environment names. The service manager's variables are removed from the
        environment, so that no child can send messages in the master's place."""
        address = environment.pop("NOTIFY_SOCKET", "")
        microseconds = environment.pop("WATCHDOG_USEC", "")
        meant = environment.pop("WATCHDOG_PID", "") in ("", str(pid))
        seconds = int(microseconds) / _MICROSECONDS if meant and microseconds.isdecimal() else 0.0
        return cls(address, seconds)

    def notify(self, effect: "NotifyManager") -> None:
        """Send a message, after any earlier messages that are still unsent. But drop the message if earlier ones remain
        unsent and it is one of those that are sent regularly, such as the sign of life."""
        if not self.has_room:
            self.flush()
        if self.has_room or not effect.can_wait:
            self.send(effect.message)

    @property
    def has_room(self) -> bool:
        """Whether all earlier messages have been sent, so that a new one does not have to wait."""
        return not self._waiting

    def send(self, message: str) -> None:
        """Send a message after any messages that are still unsent. A RELOADING message includes the time at which it is
        sent."""
        if self.is_there:
            if message == _RELOADING:
                message += f"\nMONOTONIC_USEC={time.monotonic_ns() // 1000}"
            self._waiting.append(message.encode())
            self.flush()

    def send_status(self, text: str) -> None:
        """Send a status line for people."""
        self.send(f"STATUS={printable(' '.join(text.split()))}")

    @contextlib.contextmanager
    def reported_failure(self) -> Iterator[None]:
        """If a Failure ends the block, report it to the manager and raise it again."""
        try:
            yield
        except Failure as failure:
            self.send_status(str(failure))
            raise

    def flush(self) -> None:
        """Send as many unsent messages as the socket accepts now. If the manager no longer exists, drop them."""
        try:
            sending = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        except OSError:  # No file descriptor is left. A later call tries again.
            return
        with sending:
            while self._waiting:
                with contextlib.suppress(OSError):
                    try:
                        sending.sendto(self._waiting[0], self._address)
                    except BlockingIOError:
                        return
                self._waiting.popleft()
