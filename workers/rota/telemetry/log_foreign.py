"""Other libraries' logging: records of the standard library's, made lines of ours."""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rota.soft_limit import time_limit_deferred

if TYPE_CHECKING:
    from rota.telemetry.log import Logger


class ForeignHandler(logging.Handler):
    """Sends records to what `logger` answers."""

    def __init__(self, logger: "Callable[[], Logger]") -> None:
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
        fields: dict[str, Any] = {"exc_info": record.exc_info} if record.exc_info else {}
        self._say(record.levelno)(message, logger=record.name, **fields)

    def _say(self, level: int) -> Callable[..., None]:
        logger = self._logger()
        for least, say in (
            (logging.CRITICAL, logger.critical),
            (logging.ERROR, logger.error),
            (logging.WARNING, logger.warning),
            (logging.INFO, logger.info),
        ):
            if level >= least:
                return say
        return logger.debug


def adopt(level: str, logger: "Callable[[], Logger]") -> None:
    """Give the root logger our handler, unless it has one."""
    root = logging.getLogger()
    if root.handlers:
        return
    root.addHandler(ForeignHandler(logger))
    root.setLevel(level.upper())
