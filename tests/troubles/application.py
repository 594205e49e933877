"""An application module with faults. All fleets on which troubles are tested import it in addition to their tasks."""

import os
import signal
import time
from pathlib import Path

import rota


@rota.on_worker_start
def connect() -> None:
    """Raise an exception while the file `no-database` exists."""
    if Path("no-database").exists():
        raise ConnectionRefusedError("the database does not answer")


@rota.task
def crash() -> None:
    """Kill the process after a while, as a crash in native code does."""
    time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGKILL)
