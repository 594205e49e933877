"""A terminal in which a test runs a command. The test can read the command's output, and the state in which the command
leaves the terminal.
"""

import os
import pty
import select
import signal
import subprocess
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

DEADLINE_SECONDS: Final = 60.0
_ENTER_SCREEN, _LEAVE_SCREEN = b"\x1b[?1049h", b"\x1b[?1049l"


class Terminal:
    """A command in a terminal. `size` has the numbers of columns and lines."""

    def __init__(
        self, command: Sequence[str], folder: Path, environment: Mapping[str, str], size: tuple[int, int]
    ) -> None:
        self._ours, self._theirs = pty.openpty()
        termios.tcsetwinsize(self._theirs, (size[1], size[0]))
        self._before: list[Any] = termios.tcgetattr(self._theirs)
        self.drawn = b""
        self.process = subprocess.Popen(
            command, cwd=folder, env={**environment, "TERM": "xterm-256color"},
            stdin=self._theirs, stdout=self._theirs, stderr=self._theirs, start_new_session=True,
        )  # fmt: skip

    def wait_for(self, text: str) -> None:
        """Wait until the command has written this text."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while text.encode() not in self.drawn:
            assert time.monotonic() < deadline, f"no {text!r} in {self.drawn!r}"
            assert self._read() or self.process.poll() is None, f"no {text!r} in {self.drawn!r}"

    def _read(self) -> bool:
        if not select.select([self._ours], [], [], 0.1)[0]:
            return False
        self.drawn += os.read(self._ours, 65536)
        return True

    def type(self, keys: bytes) -> None:
        """Press keys."""
        os.write(self._ours, keys)

    def signal(self, number: int) -> None:
        """Send a signal to the command."""
        self.process.send_signal(number)

    def exit_code(self) -> int:
        """Wait until the command has ended, read its remaining output, and return the exit code."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self.drawn
            self._read()
        while self._read():
            pass
        return self.process.wait()

    def is_as_before(self) -> bool:
        """Whether the command has restored the key mode, the echo and the screen."""
        is_screen_left = self.drawn.rfind(_LEAVE_SCREEN) >= self.drawn.rfind(_ENTER_SCREEN)
        is_cursor_shown = self.drawn.rfind(b"\x1b[?25h") >= self.drawn.rfind(b"\x1b[?25l")
        return is_screen_left and is_cursor_shown and termios.tcgetattr(self._theirs) == self._before

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        os.close(self._ours)
        os.close(self._theirs)


@contextmanager
def in_terminal(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], size: tuple[int, int] = (80, 24)
) -> Iterator[Terminal]:
    """Run a command in a terminal, and kill it at the end of the block."""
    terminal = Terminal(command, folder, environment, size)
    try:
        yield terminal
    finally:
        terminal.close()
