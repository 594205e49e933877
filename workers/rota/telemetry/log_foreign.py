"""What does not come from us and goes into our log: the records of other libraries, and what is printed."""

import io
import logging
import sys
import threading
from collections.abc import Callable
from typing import Final

from rota.child.child_settings import LogSettings
from rota.soft_limit import time_limit_deferred
from rota.telemetry import log, log_events
from rota.telemetry.log_lines import LINE_BYTES, Fields

_STREAM_LEVELS: Final = {"stdout": "info", "stderr": "warning"}


class ForeignHandler(logging.Handler):
    """Sends records of the standard library's logging to what `logger` returns, with the fields of `of_task`."""

    def __init__(self, logger: Callable[[], log.Logger], of_task: Callable[[], Fields] = dict) -> None:
        super().__init__()
        self._logger = logger
        self._of_task = of_task

    def handle(self, record: logging.LogRecord) -> bool:
        """As any handler does. A soft limit waits meanwhile: raised in here, it could leave the handler's lock taken,
        and threads of later tasks would wait for it for ever."""
        with time_limit_deferred:
            return bool(super().handle(record))

    def emit(self, record: logging.LogRecord) -> None:
        try:
            message = record.getMessage()
        except (TypeError, ValueError):  # a wrong number of % arguments is the caller's mistake, not ours to raise
            message = str(record.msg)
        fields = {"exc_info": record.exc_info} if record.exc_info else {}
        level = next((name for name, least in reversed(log.LEVELS.items()) if record.levelno >= least), "debug")
        getattr(self._logger(), level)(message, logger=record.name, **self._of_task(), **fields)


def adopt(settings: LogSettings, of_task: Callable[[], Fields] = dict) -> None:
    """Send the standard library's logging to our log, unless the application has set up its own logging.

    With `settings.capture_output`, also turn what this process prints into log lines. `of_task` returns the fields that
    name the current task. Call this after the application's modules were imported: a root logger that has a handler
    would make their `logging.basicConfig()` do nothing.
    """
    _handle_records(settings.level, of_task)
    if settings.capture_output:
        sys.stdout = PrintedLines("stdout", of_task)
        sys.stderr = PrintedLines("stderr", of_task)


def _handle_records(level: str, of_task: Callable[[], Fields]) -> None:
    root = logging.getLogger()
    if not root.handlers:
        root.addHandler(ForeignHandler(log.logger, of_task))
        root.setLevel(level.upper())


class PrintedLines(io.TextIOBase):
    """Stands for `sys.stdout` or `sys.stderr`: each line that is printed becomes one of the log, which never blocks.

    What has no end of line yet waits for it, for a flush, or until it would fill a line of the log.
    """

    encoding = "utf-8"

    def __init__(self, stream: str, of_task: Callable[[], Fields]) -> None:
        self._stream = stream
        self._of_task = of_task
        self._begun = ""
        self._lock = threading.RLock()  # of threads of tasks; once more by what a handler of a signal prints

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        with time_limit_deferred, self._lock:
            *lines, self._begun = (self._begun + text).split("\n")
            for line in lines:
                self._tell(line)
            if len(self._begun) > LINE_BYTES:
                self.flush()
        return len(text)

    def flush(self) -> None:
        with time_limit_deferred, self._lock:
            begun, self._begun = self._begun, ""
            if begun:
                self._tell(begun)

    def _tell(self, line: str) -> None:
        tell = getattr(log.logger(), _STREAM_LEVELS[self._stream])
        tell(log_events.TASK_PRINTED, text=line, stream=self._stream, **self._of_task())
