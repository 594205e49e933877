"""`rota run`: check what can be checked, then become the master."""

import contextlib
import dataclasses
import importlib.util
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from rota.server.address import parse_address
from rota.telemetry.stand_ins import importing_with
from rota_supervisor.cli.output import say
from rota_supervisor.cli.state import HELP_NAMES, common_options, current_state, warn_all, warn_without_imports
from rota_supervisor.config.flags import Flags
from rota_supervisor.config.load import Loaded, Sources, load_config, sources_of
from rota_supervisor.config.model import Config
from rota_supervisor.control.places import ControlPlace, claim_place, hold_pid_file, socket_places
from rota_supervisor.exits import ExitCode, Failure
from rota_supervisor.process import show_title

_COUNT: Final = re.compile(r"[0-9]{1,9}", re.ASCII)  # of many more digits Python makes no number


@click.command(context_settings=HELP_NAMES)
@click.option("-w", "--workers", multiple=True, metavar="N|POOL=N", help="How many workers, in all or in a pool.")
@click.option("--pool", "pools", multiple=True, metavar="POOL", help="Run this pool only; may be repeated.")
@click.option(
    "-Q", "--tier", "tiers", multiple=True, metavar="TIER", help="Serve these tiers, highest first: -Q high -Q a,b."
)
@click.option("--burst", is_flag=True, help="Leave when nothing is ready or running.")
@click.option("--reload", is_flag=True, help="For development: restart the workers when code changes.")
@click.option("--embedded", is_flag=True, help="Start a Valkey at redis_url, which must be on this machine.")
@click.option("--pid-file", default="", metavar="PATH", help="Write the master's pid there [control.pid_file].")
@click.option("--record", default="", hidden=True, help="Write what happens to the master, to be replayed by tests.")
@click.argument("imports", nargs=-1)
@common_options
def run(
    *,
    workers: tuple[str, ...],
    pools: tuple[str, ...],
    tiers: tuple[str, ...],
    burst: bool,
    reload: bool,
    embedded: bool,
    pid_file: str,
    record: str,
    imports: tuple[str, ...],
) -> None:
    """Run a fleet until it is stopped. IMPORTS are the modules that define the tasks [imports]."""
    state = current_state()
    flags = dataclasses.replace(flags_of(workers, pools, tiers, imports), pid_file=pid_file)
    sources = sources_of(state.config_file, flags)
    loaded = state.load(flags)
    warn_all(loaded)
    warn_without_imports(loaded)
    config = loaded.config
    folder = _current_folder()
    _settle_environment(config, no_color=state.no_color, reload=reload)
    with importing_with(absent=_unneeded(config)):
        from rota_supervisor.master.effects.notify_socket import NotifySocket  # noqa: PLC0415
        from rota_supervisor.master.shell.run import RunOptions, run_master  # noqa: PLC0415 - now it is known what it needs
    again = _sources_of_reloads(sources, loaded)
    state.is_master = True
    manager = NotifySocket.take(os.environ, os.getpid())
    with manager.reported_failure(), _server(config, sources.file.parent, embedded=embedded), _place(config) as place:
        options = RunOptions(
            loaded,
            reload=lambda: load_config(again),
            place=place,
            manager=manager,
            file=sources.file,
            code=(folder,) if reload else (),
            burst=burst,
            import_paths=(folder,),
            record=record,
        )
        run_master(options)


def _current_folder() -> str:
    try:
        return str(Path.cwd())
    except OSError as error:
        raise Failure(
            ExitCode.CONFIG, f"the current folder cannot be used: {error.strerror}: start in the folder of your code"
        ) from None


def _settle_environment(config: Config, *, no_color: bool, reload: bool) -> None:
    """What all processes of the fleet inherit; and the title, which finds its room by the environment as it was."""
    show_title("master", config.namespace)
    if reload:
        _prepare_for_development()
    if no_color:
        os.environ["NO_COLOR"] = "1"  # for the log, which each process of the fleet writes by itself


def _sources_of_reloads(sources: Sources, first: Loaded) -> Sources:
    # Without the file it had, a fleet would go on by the defaults: no modules, and every task dead as unknown.
    return dataclasses.replace(sources, required=sources.required or first.content is not None)


def _prepare_for_development() -> None:
    if importlib.util.find_spec("watchfiles") is None:
        raise click.UsageError("--reload needs the library watchfiles: install rota[reload]")
    # Python takes compiled code for that of a source of the same size saved within the same second.
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"


def _unneeded(config: Config) -> tuple[str, ...]:
    # asyncio does without ssl where it is not built, and a master needs it for a rediss:// alone: 1.6 MB with CPython
    # 3.11, OpenSSL included. A running fleet keeps its redis_url.
    return () if parse_address(config.redis_url).tls else ("ssl",)


def flags_of(
    workers: tuple[str, ...], pools: tuple[str, ...], tiers: tuple[str, ...], imports: tuple[str, ...]
) -> Flags:
    """The flags as values. Raises click.BadParameter."""
    in_all: int | None = None
    by_pool: list[tuple[str, int]] = []
    for text in workers:
        pool, equals, count = text.rpartition("=")
        if not _COUNT.fullmatch(count) or (equals and not pool):
            raise click.BadParameter(f"-w takes a number, or POOL=NUMBER, and not {text!r}")
        if equals:
            by_pool.append((pool, int(count)))
        else:
            in_all = int(count)
    split = tuple(tuple(queue.strip() for queue in tier.split(",")) for tier in tiers)
    return Flags(in_all, tuple(by_pool), pools, split, imports)


@contextlib.contextmanager
def _server(config: Config, beside: Path, *, embedded: bool) -> Iterator[None]:
    if not embedded:
        yield
        return
    if config.durability == "wait":
        raise Failure(ExitCode.CONFIG, 'durability = "wait" wants a replica, and --embedded has none: use "waitaof"')
    # Only here: finding the wheel takes importlib.metadata, 1.9 MB that a master would keep for nothing.
    from rota_supervisor.embedded import embedded_server  # noqa: PLC0415

    with embedded_server(config.redis_url, beside) as folder:
        say(f"the embedded Valkey keeps its data in {folder}")
        yield


@contextlib.contextmanager
def _place(config: Config) -> Iterator[ControlPlace]:
    """Hold the pid file and the control socket. Raises Failure 73."""
    with hold_pid_file(config.control.pid_file):
        place = claim_place(socket_places(config, os.environ, os.getuid())[0])
        try:
            yield place
        finally:
            place.close()
