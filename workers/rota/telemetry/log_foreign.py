"""Other libraries' logging: records of the standard library's, made lines of ours."""

import logging
from collections.abc import Callable

from rota.soft_limit import time_limit_deferred
from rota.telemetry import log


class ForeignHandler(logging.Handler):
    """Sends records to what `logger` returns."""

    def __init__(self, logger: Callable[[], log.Logger]) -> None:
        super().__init__()
        self._logger = logger

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
        getattr(self._logger(), level)(message, logger=record.name, **fields)


def adopt(level: str) -> None:
    """Give the root logger our handler, unless it has one."""
    root = logging.getLogger()
    if not root.handlers:
        root.addHandler(ForeignHandler(log.logger))
        root.setLevel(level.upper())
