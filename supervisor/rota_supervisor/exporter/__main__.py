"""The exporter's process: come in, serve until TERM, leave at once when the master is gone."""

import os
import sys

from rota_supervisor.child import enter
from rota_supervisor.exporter.loop import run_exporter
from rota_supervisor.exporter.settings import exporter_settings


def main() -> int:
    """Run the exporter until it is told to leave; answers its exit code."""
    entrance = enter(os.getpid())
    return run_exporter(exporter_settings(entrance.first.settings), entrance)


if __name__ == "__main__":
    sys.exit(main())
