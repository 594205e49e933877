"""The exporter's process, as a master starts it."""

import os
import sys
from typing import Final

from rota.child import child_life, slot_memory
from rota.telemetry import log
from rota_supervisor import child, layout
from rota_supervisor.exporter.access import Door
from rota_supervisor.exporter.exporter_settings import exporter_settings
from rota_supervisor.exporter.service import ExporterPlace, serve
from rota_supervisor.process import show_title

EXIT_NO_DOOR: Final = 1


def main() -> int:
    """Serve until it is told to leave, and leave at once when the master is gone; return the exit code."""
    entrance = child.enter(os.getpid())
    settings, first = exporter_settings(entrance.first.settings), entrance.first
    show_title("exporter", settings.server.namespace)
    log.configure(settings.log, **log.of_process(first.role, settings.server.namespace, first.node, slot=first.slot))
    slots_fd, bell_fd, listen_fd, stack_fd = entrance.descriptors
    assert listen_fd is not None, "an exporter is given a socket"
    memory = slot_memory.SlotMemory.to_read(slots_fd)
    try:
        door = Door(settings)
    except OSError as error:
        child.leave_last_words(stack_fd, f"[http] cannot be used: {error}")
        return EXIT_NO_DOOR
    place = ExporterPlace(memory, first.master_pid, entrance.slot, layout.DEATH_FD, lambda: child_life.ring(bell_fd))
    return serve(settings, door, place, listen_fd)


if __name__ == "__main__":
    sys.exit(main())
