"""`rota run`: check what can be checked, then become the master."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import click

from rota.server.address import parse_address
from rota.telemetry.stand_ins import importing_with
from rota_supervisor.cli.output import say
from rota_supervisor.cli.state import HELP_NAMES, common_options, current_state, warn_all, warn_without_imports
from rota_supervisor.config.flags import Flags
from rota_supervisor.config.load import load_config, sources_of
from rota_supervisor.config.model import Config
from rota_supervisor.control.places import ControlPlace, claim_place, pid_file, socket_places
from rota_supervisor.exits import ExitCode, Failure


@click.command(context_settings=HELP_NAMES)
@click.option("-w", "--workers", multiple=True, metavar="N|POOL=N", help="How many workers, in all or in a pool.")
@click.option("--pool", "pools", multiple=True, metavar="POOL", help="Run this pool only; may be repeated.")
@click.option(
    "-Q", "--tier", "tiers", multiple=True, metavar="TIER", help="Serve these tiers, highest first: -Q high -Q a,b."
)
@click.option("--burst", is_flag=True, help="Leave when nothing is ready or running.")
@click.option("--embedded", is_flag=True, help="Start a Valkey at redis_url, which must be on this machine.")
@click.argument("imports", nargs=-1)
@common_options
def run(
    *,
    workers: tuple[str, ...],
    pools: tuple[str, ...],
    tiers: tuple[str, ...],
    burst: bool,
    embedded: bool,
    imports: tuple[str, ...],
) -> None:
    """Run a fleet until it is stopped. IMPORTS are the modules that define the tasks [imports]."""
    state = current_state()
    flags = flags_of(workers, pools, tiers, imports)
    sources = sources_of(state.config_file, flags)
    loaded = state.load(flags)
    warn_all(loaded)
    warn_without_imports(loaded)
    config = loaded.config
    with importing_with(absent=_unneeded(config)):
        from rota_supervisor.master.run import run_master  # noqa: PLC0415 - only now it is known what it needs
    with _server(config, sources.file.parent, embedded=embedded), _place(config) as place:
        run_master(
            config,
            reload=lambda: load_config(sources),
            place=place,
            burst=burst,
            import_paths=(str(Path.cwd()),),
        )


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
        if not (count.isascii() and count.isdecimal()) or (equals and not pool):
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
    from rota_supervisor.embedded import (  # noqa: PLC0415
        AddressTakenError,
        EmbeddedError,
        NoAnswerError,
        embedded_server,
    )

    with contextlib.ExitStack() as stack:
        try:
            folder = stack.enter_context(embedded_server(config.redis_url, beside))
        except AddressTakenError as error:
            raise Failure(ExitCode.TAKEN, str(error)) from None
        except NoAnswerError as error:
            raise Failure(ExitCode.UNREACHABLE, str(error)) from None
        except EmbeddedError as error:
            raise Failure(ExitCode.CONFIG, str(error)) from None
        say(f"the embedded Valkey keeps its data in {folder}")
        yield


@contextlib.contextmanager
def _place(config: Config) -> Iterator[ControlPlace]:
    """Hold the pid file and the control socket. Raises Failure 73."""
    with pid_file(config.control.pid_file):
        place = claim_place(socket_places(config, os.environ, os.getuid())[0])
        try:
            yield place
        finally:
            place.close()
