"""The poller's process: come in, build its life, run the loop that `rota.poller` defines."""

import json
import os
import sys

from rota.child.child_life import Life
from rota.child.child_settings import poller_settings_from_json
from rota.poller.poller_loop import run_poller
from rota_supervisor.child import enter
from rota_supervisor.layout import DEATH_FD
from rota_supervisor.process import show_title


def main() -> int:
    """Run a poller until it is told to leave; returns its exit code."""
    entrance = enter(os.getpid())
    first = entrance.first
    settings = poller_settings_from_json(json.dumps(first.settings))
    show_title("poller", settings.server.namespace)
    bell_fd = entrance.descriptors.bell
    return run_poller(settings, Life(first.node, first.slot, entrance.slot, first.nonce, "", DEATH_FD, bell_fd))


if __name__ == "__main__":
    sys.exit(main())
