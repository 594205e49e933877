"""The long-running commands. `rota run` makes all checks and then becomes the master. `rota exporter` serves the
metrics and the status page of a fleet that runs elsewhere."""

import contextlib
import dataclasses
import importlib.util
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import click

from rota_supervisor.child_start import Spawner
from rota_supervisor.cli import command, output
from rota_supervisor.config.loader import Flags, Loaded, Sources, load_config, sources_of
from rota_supervisor.config.model import Config
from rota_supervisor.config.resolution import server_settings
from rota_supervisor.exits import ExitCode, Failure
from rota_supervisor.layout import Role
from rota_supervisor.process import keep_descriptors_private, show_title

_WORKERS: Final = re.compile(r"[0-9]{1,9}(\.\.[0-9]{1,9})?", re.ASCII)  # Python rejects numbers with very many digits


@click.command(cls=command.RotaCommand)
@click.option(
    "-w",
    "--workers",
    multiple=True,
    metavar="N|POOL=N",
    help="Set the number of workers of the fleet or of one pool, or a range such as 2..16.",
)
@click.option("--pool", "pools", multiple=True, metavar="POOL", help="Run only this pool. May be repeated.")
@click.option(
    "-Q", "--tier", "tiers", multiple=True, metavar="TIER", help="Serve these tiers, highest first: -Q high -Q a,b."
)
@click.option("--burst", is_flag=True, help="Exit when no task is ready or running.")
@click.option("--reload", is_flag=True, help="Restart the workers when code changes, for development.")
@click.option("--embedded", is_flag=True, help="Start a Valkey server at redis_url, which must be on this machine.")
@click.option("--pid-file", default="", metavar="PATH", help="Write the master's pid to this file [control.pid_file].")
@click.option(
    "--record", default="", hidden=True, help="Record the events of the master in this file, for replay in tests."
)
@click.argument("imports", nargs=-1)
def run(*, burst: bool, reload: bool, embedded: bool, record: str, **of_configuration: Any) -> None:
    """Run a fleet until it is stopped. IMPORTS are the modules that define the tasks [imports]."""
    state = command.current_state()
    sources = sources_of(state.config_file, flags := _flags_of(**of_configuration))
    loaded = state.load(flags)  # The warnings are not printed here, because the master logs them later.
    command.warn_without_imports(config := loaded.config)
    folder = _current_folder()
    # Set the title before the environment changes, because the environment determines how long titles may be.
    show_title("master", config.namespace)
    _settle_environment(no_color=state.no_color, reload=reload)
    from rota_supervisor.master.effects.notify_socket import NotifySocket  # noqa: PLC0415 - other commands do not need it

    state.is_master = True
    manager = NotifySocket.take(os.environ, os.getpid())
    spawner = _spawner_with_zygote()
    # The master loads its own modules only now, so that the zygote loads its modules in parallel.
    from rota_supervisor.control.socket_server import hold_control_files  # noqa: PLC0415
    from rota_supervisor.master.shell.run import RunOptions, run_master  # noqa: PLC0415
    from rota_supervisor.server_check import check_server  # noqa: PLC0415

    with (
        contextlib.closing(spawner),  # ends the zygote if the start is refused
        manager.reported_failure(),
        _server(config, sources.file.parent, embedded=embedded),
        hold_control_files(config) as control_socket,
    ):
        options = RunOptions(
            loaded,
            reload=lambda: load_config(_sources_of_reload(sources, loaded)),
            check_server=lambda: check_server(config, open_namespace=True).warnings,
            control_socket=control_socket,
            manager=manager,
            spawner=spawner,
            file=sources.file,
            code=(folder,) if reload else (),
            burst=burst,
            import_paths=(folder,),
            record=record,
        )
        run_master(options)


def _sources_of_reload(sources: Sources, loaded: Loaded) -> Sources:
    """Return the sources that a reload reads. If the file existed at the start, reloads require the file. If it has
    been deleted, a reload would otherwise use the defaults, which import no module, and every task would become dead
    because its name is unknown.
    """
    return dataclasses.replace(sources, required=sources.required or loaded.content is not None)


def _spawner_with_zygote() -> Spawner:
    """Return a spawner that has already started the zygote. The zygote takes as long to load its modules as the master,
    so both do it at the same time.
    """
    keep_descriptors_private()
    spawner = Spawner()
    spawner.prestart(Role.ZYGOTE)
    return spawner


def _flags_of(*, workers: Sequence[str], tiers: Sequence[str], **others: Any) -> Flags:
    """Return the Flags that these options describe. Raises click.BadParameter."""
    in_all: int | str | None = None
    by_pool: list[tuple[str, int | str]] = []
    for text in workers:
        pool, equals, count = text.rpartition("=")
        if not _WORKERS.fullmatch(count) or (equals and not pool):
            raise click.BadParameter(f"-w must be a number, a range as in 2..16, or POOL=NUMBER, not {text!r}")
        number = count if ".." in count else int(count)
        if equals:
            by_pool.append((pool, number))
        else:
            in_all = number
    split = tuple(tuple(queue.strip() for queue in tier.split(",")) for tier in tiers)
    return Flags(workers=in_all, pool_workers=tuple(by_pool), tiers=split, **others)


def _current_folder() -> str:
    try:
        return str(Path.cwd())
    except OSError as error:
        message = f"the current folder cannot be used: {error.strerror}: start the command in the folder of your code"
        raise Failure(ExitCode.CONFIG, message) from None


def _settle_environment(*, no_color: bool, reload: bool) -> None:
    """Set the environment that all processes of the fleet inherit. Raises click.UsageError if files cannot be
    watched."""
    if no_color:
        os.environ["NO_COLOR"] = "1"  # Every process writes its own log lines, and reads this variable for it.
    if not reload:
        return
    if importlib.util.find_spec("watchfiles") is None:
        raise click.UsageError("--reload needs the library watchfiles: install rota[reload]")
    # If a source file is saved twice within a second and its size stays the same, Python would use stale compiled code.
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"


@contextlib.contextmanager
def _server(config: Config, beside: Path, *, embedded: bool) -> Iterator[None]:
    if not embedded:
        yield
        return
    if config.durability == "wait":
        raise Failure(ExitCode.CONFIG, 'durability = "wait" needs a replica, and --embedded has none: use "waitaof"')
    if config.redis_credentials:
        raise Failure(
            ExitCode.CONFIG, "--embedded does not support users: remove redis_credentials from the configuration"
        )
    # Imported here, because this module loads importlib.metadata to find the wheel, and the master would keep its 1.9
    # MB needlessly.
    from rota_supervisor.embedded import embedded_server  # noqa: PLC0415

    with embedded_server(config.redis_url, beside) as folder:
        output.print_message(f"the embedded Valkey keeps its data in {folder}")
        yield


@click.command(cls=command.RotaCommand)
def exporter() -> int:
    """Serve metrics and the status page of a fleet that runs elsewhere, until it is stopped.

    The exporter listens at http.listen and serves data from Redis: queues, nodes and dead tasks. Values that masters
    count themselves, such as lag, are served by the masters' own exporters.
    """
    # Imported here, because a process that becomes a master would keep these modules needlessly.
    from rota_supervisor.exporter.access import AccessRules  # noqa: PLC0415
    from rota_supervisor.exporter.service import serve_standalone  # noqa: PLC0415
    from rota_supervisor.master.core.process_settings import exporter_settings  # noqa: PLC0415
    from rota_supervisor.master.effects.listen_socket import ListenSocket  # noqa: PLC0415

    config = command.current_state().load_with_warnings().config
    if not config.http.listen:
        raise Failure(
            ExitCode.CONFIG, 'http.listen is "", which turns HTTP off: set the address on which the exporter listens'
        )
    # This process has no master that would share the login of the URL.
    settings = dataclasses.replace(exporter_settings(config), server=server_settings(config))
    try:
        access = AccessRules(settings)
    except OSError as error:
        raise Failure(ExitCode.CONFIG, f"[http] cannot be used: {error}") from error
    with contextlib.closing(ListenSocket()) as listening:
        listening.start(config.http.listen)
        assert listening.fd is not None
        return serve_standalone(settings, access, os.dup(listening.fd))
