"""The exporter's process: come in, serve until TERM, leave at once when the master is gone."""

import os
import sys

from rota_supervisor.child import enter
from rota_supervisor.exporter.loop import run_exporter
from rota_supervisor.exporter.settings import exporter_settings
from rota_supervisor.process import show_title


def main() -> int:
    """Run the exporter until it is told to leave; answers its exit code."""
    entrance = enter(os.getpid())
    settings = exporter_settings(entrance.first.settings)
    show_title("exporter", settings.server.namespace)
    return run_exporter(settings, entrance)


if __name__ == "__main__":
    sys.exit(main())
