"""The log of the master's process: its own lines, and what nobody foresaw, as events: all that Python and its libraries
would write to standard error by themselves.

There it would be no line of the log; and where nobody reads, such a write never returns, while the log's sink drops
what it cannot write. Only the stack of a fatal error goes there, by faulthandler.
"""

import asyncio
import logging
import sys
import threading
import warnings
from types import TracebackType
from typing import Any

from rota.telemetry import log, log_events
from rota_supervisor.config.model import Config
from rota_supervisor.config.resolution import log_settings
from rota_supervisor.layout import Role
from rota_supervisor.master.core import effects as do


def write_log(effect: do.WriteLog) -> None:
    """Write one event."""
    getattr(log.logger(), effect.level)(effect.event, **effect.fields)


def configure_log(config: Config, node: str) -> None:
    """Set up the log of the master's process."""
    log.configure(log_settings(config), **log.of_process(Role.MASTER.value, config.namespace, node))


def change_log(config: Config, node: str) -> None:
    """The same, while the fleet runs: where the library of a format cannot be loaded now, lines stay as they are."""
    try:
        configure_log(config, node)
    except (OSError, ImportError) as error:
        log.logger().error(log_events.CONFIG_WARNING, path="log.format", warning=f"it stays as it was: {error}")


def tell_in_log() -> None:
    """From now on, for the whole process."""
    sys.excepthook = _end
    sys.unraisablehook = _tell_unraisable
    threading.excepthook = _tell_thread
    warnings.showwarning = _tell_warning
    logging.raiseExceptions = False
    logging.getLogger().addHandler(_Records())


def tell_of_loop(loop: asyncio.AbstractEventLoop) -> None:
    """The same of a loop: what it finds in callbacks, and in tasks that nobody waits for."""
    loop.set_exception_handler(lambda _, context: _tell("asyncio", context["message"], context.get("exception")))


class _Records(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        try:
            message = record.getMessage()
        except (TypeError, ValueError):  # its arguments do not fit
            message = str(record.msg)
        if record.levelno >= logging.WARNING:
            _tell(record.name, message, record.exc_info[1] if record.exc_info else None)


def _tell(source: str, error: str, exception: BaseException | None) -> None:
    more: dict[str, Any] = {} if exception is None else {"exc_info": exception}
    log.logger().error(log_events.FLEET_CALL_FAILED, source=source, error=error, **more)


def _tell_unraisable(found: "sys.UnraisableHookArgs") -> None:
    _tell("python", f"{found.err_msg or 'exception ignored in'}: {found.object!r}", found.exc_value)


def _tell_thread(found: threading.ExceptHookArgs) -> None:
    name = found.thread.name if found.thread else "unknown"
    _tell("threading", f"the thread {name} has ended by an exception", found.exc_value)


def _tell_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: Any, **__: Any
) -> None:
    error = f"{filename}:{lineno}: {category.__name__}: {message}"
    log.logger().warning(log_events.FLEET_CALL_FAILED, source="warnings", error=error)


def _end(_kind: type[BaseException], error: BaseException, _traceback: TracebackType | None) -> None:
    log.logger().critical(
        log_events.FLEET_FAILED, error=f"{type(error).__name__}: {error}", exit_code=1, exc_info=error
    )
