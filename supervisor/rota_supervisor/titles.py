"""What `ps` and `top` show of a fleet's processes: `rota: worker default 12 (shop)`, 12 being its slot.

A title takes the place of the command line, and is cut at its length. The environment behind it stays readable in
`/proc/PID/environ`. Nothing secret is in a title: anybody on the machine can read it. The task that runs is not in it,
since to say so would cost more than the rest of an attempt.
"""

import functools
import os
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

from rota.telemetry.stand_ins import importing_with

_KEEP_ENVIRONMENT: Final = "SPT_NOENV"  # read by setproctitle once, when it looks for its room


def show_title(what: str, namespace: str) -> None:
    """Name this process. The first call comes before anything is changed in the environment: room is found by it."""
    _setter()(f"rota: {what} ({namespace})")


@functools.cache
def _setter() -> Callable[[str], None]:
    # It wants logging for messages that it does not write: 2 MB in each of our processes.
    with importing_with([_Silence("logging")]):
        import setproctitle  # noqa: PLC0415 - only in processes that have a title
    chosen = os.environ.get(_KEEP_ENVIRONMENT)
    os.environ[_KEEP_ENVIRONMENT] = "1"
    setproctitle.getproctitle()
    if chosen is None:
        del os.environ[_KEEP_ENVIRONMENT]
    return setproctitle.setproctitle


class _Silence(ModuleType):
    """Stands for `logging` where nothing is logged."""

    def getLogger(self, _name: str) -> "_Silence":  # noqa: N802 - the name it has there
        return self

    def debug(self, *_: Any) -> None:
        """Say nothing."""
