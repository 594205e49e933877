"""`rota exporter`: metrics and the status page of a fleet that runs elsewhere."""

import dataclasses
import os
from contextlib import closing

import click

from rota.child.slot_memory import SlotMemory
from rota.child.slots import MASTER_SLOT
from rota.telemetry import log
from rota_supervisor.cli import command
from rota_supervisor.exits import ExitCode, Failure
from rota_supervisor.exporter.access import Door
from rota_supervisor.exporter.exporter_settings import ExporterSettings
from rota_supervisor.exporter.service import BEAT_SECONDS, ExporterPlace, serve
from rota_supervisor.master.core.process_settings import exporter_settings
from rota_supervisor.master.effects.listen_socket import ListenSocket
from rota_supervisor.process import show_title

_NONCE = 1


@click.command(cls=command.RotaCommand)
def exporter() -> int:
    """Serve metrics and the status page of a fleet that runs elsewhere, until it is stopped.

    At http.listen, from what Redis knows: queues, nodes, dead tasks. What masters count themselves, as lag, their own
    exporters serve.
    """
    config = command.current_state().load_with_warnings().config
    if not config.http.listen:
        raise Failure(ExitCode.CONFIG, 'http.listen is "", which turns HTTP off: say where to listen')
    told = exporter_settings(config)
    settings = dataclasses.replace(told, alone=True, ask_redis=True, tick_seconds=BEAT_SECONDS)
    try:
        door = Door(settings)
    except OSError as error:
        raise Failure(ExitCode.CONFIG, f"[http] cannot be used: {error}") from error
    listening = ListenSocket()
    with closing(listening):
        listening.begin(config.http.listen)
        return _serve(settings, door, listening)


def _serve(settings: ExporterSettings, door: Door, listening: ListenSocket) -> int:
    show_title("exporter", settings.server.namespace)
    log.configure(settings.log, **log.of_process("exporter", settings.server.namespace, os.uname().nodename))
    memory = SlotMemory.create(1)
    own = memory.slot(MASTER_SLOT)  # in the place of a master, whose loop is ours
    own.begin(_NONCE)
    own.enter(_NONCE, os.getpid())
    assert listening.fd is not None
    return serve(settings, door, ExporterPlace(memory, os.getpid(), own), os.dup(listening.fd))
