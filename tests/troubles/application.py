"""A module with the faults of an application. Every fleet of the bench imports it in addition to its tasks."""

import os
import signal
import time
from pathlib import Path

import rota


@rota.on_worker_start
def connect() -> None:
    """Fail while there is a file `no-database`."""
    if Path("no-database").exists():
        raise ConnectionRefusedError("the database does not answer")


@rota.task
def crash() -> None:
    """End the process after a while, as a crash in native code does."""
    time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGKILL)
