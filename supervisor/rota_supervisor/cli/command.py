"""The parts that all commands share: common options, access to the configuration and the server, and output as data or
text.
"""

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from rota.durations import seconds, unix_microseconds
from rota.protocol.keys import fault_in_name
from rota.protocol.task_states import State
from rota_supervisor.cli import output
from rota_supervisor.config.errors import ConfigError, suggestion
from rota_supervisor.config.loader import DEFAULT_FILE, NO_FLAGS, Flags, Loaded, load_config, sources_of
from rota_supervisor.config.model import Config
from rota_supervisor.exits import ExitCode, Failure

if TYPE_CHECKING:
    from rota.client.status import TaskStatus
    from rota.protocol.store import Store
    from rota.server.connection import Connection
    from rota_supervisor.cli.control_client import FoundMaster


_SECONDS: Final = {"": 1, "ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?|\.\d+)\s*([a-z]*)", re.ASCII)


class UsableConfig(NamedTuple):
    """The part of a configuration that could be read."""

    config: Config
    faults: Sequence[str] = ()
    master: "FoundMaster | None" = None  # if the file has faults: the running master that was started with it


@dataclass(slots=True)
class CliState:
    """The common options, which may be written anywhere on the command line, and whether this process became a
    master.
    """

    config_file: str | None = None
    json: bool = False
    no_color: bool = field(default_factory=lambda: bool(os.environ.get("NO_COLOR")))
    is_master: bool = False  # whether this process became a master

    def hints_of_folder(self) -> list[str]:
        """Return hints to add to the error message when a connection fails, for example that this folder has no
        configuration file.
        """
        if sources_of(self.config_file).file.exists():
            return []
        return [f"there is no {DEFAULT_FILE} in this folder: name it with -c FILE if it is elsewhere"]

    def load(self, flags: Flags = NO_FLAGS) -> Loaded:
        """Load the configuration. If it has faults, raises Failure with code 78, which lists all of them."""
        sources = sources_of(self.config_file, flags)
        try:
            return load_config(sources)
        except ConfigError as error:
            raise Failure(ExitCode.CONFIG, *_messages(error, sources.file)) from None

    def load_with_warnings(self, flags: Flags = NO_FLAGS) -> Loaded:
        """Load the configuration and print its warnings. If it has faults, raises Failure with code 78, which lists all
        of them."""
        loaded = self.load(flags)
        for warning in loaded.warnings:
            output.print_warning(warning)
        return loaded

    def load_usable(self) -> "UsableConfig":
        """Return a configuration with which this node can be reached. The file may have faults, because the fleet must
        be reachable while someone repairs the file.

        If the configuration has faults, the server, the namespace and the control socket are taken from the running
        master that was started with the same file. If there is no such master, the configuration contains only the
        parts of the file that could be read.
        """
        sources = sources_of(self.config_file)
        try:
            return UsableConfig(load_config(sources).config)
        except ConfigError as error:
            from rota_supervisor.cli.control_client import find_master  # noqa: PLC0415 - only needed if there are faults

            config = error.usable
            found = find_master(sources.file, error.usable)
            reached = config if found is None else found.reached_by(config)
            return UsableConfig(reached, _messages(error, sources.file), found)

    def load_to_reach(self) -> Config:
        """Return a configuration with which the fleet's server and namespace can be reached.

        If the file has faults, a warning is printed, and both are taken from the running master that was started with
        the file. The other settings are read from the file as far as possible. If there is no such master, raises
        Failure with code 78, which lists all faults.
        """
        config, faults, found = self.load_usable()
        if not faults:
            return config
        if found is None:
            raise Failure(ExitCode.CONFIG, *faults)
        more = f" (and {output.counted(len(faults) - 1, 'other fault')})" if len(faults) > 1 else ""
        output.print_warning(
            f"{faults[0]}{more}; the server and the namespace, {found.namespace}, are those of the running master, "
            f"pid {found.pid}"
        )
        return config

    @contextlib.contextmanager
    def redis(self, config: Config | None = None) -> Iterator[tuple[Config, "Store", "Connection"]]:
        """Yield the configuration, the store of its namespace, and a connection. Raises Failure with code 69 or 78."""
        from rota.protocol.store import Store  # noqa: PLC0415 - commands to a master do not need these two
        from rota_supervisor.server_check import connected  # noqa: PLC0415

        config = config or self.load_to_reach()
        with connected(config) as connection:
            yield config, Store(config.namespace), connection

    def table(self, data: Any, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Write the data as JSON if --json is given, and otherwise write the rows as a table."""
        if self.json:
            output.put_json(data)
        else:
            output.put_table(header, rows, no_color=self.no_color)

    def fields(self, data: Any, shown: Mapping[str, object]) -> None:
        """Write the data as JSON if --json is given, and otherwise write each field in `shown` on a line."""
        if self.json:
            output.put_json(data)
        else:
            for key, value in shown.items():
                output.put_field(key, value)

    def report(self, data: Any, text: str) -> None:
        """Write the data as JSON if --json is given, and otherwise write the text."""
        if self.json:
            output.put_json(data)
        else:
            output.print_message(text)


def current_state() -> CliState:
    """Return the state of the running command."""
    return click.get_current_context().ensure_object(CliState)


def _messages(error: ConfigError, file: Path) -> list[str]:
    """Return one line per fault, which names the file or other source of the fault."""
    lines = []
    for fault in error.faults:
        # If the fault is in an environment variable or a flag, its path is the name of the variable or flag.
        is_elsewhere = bool(fault.origin) or fault.path.startswith(("ROTA_", "-"))
        is_of_no_file = is_elsewhere or fault.path == str(file) or not file.exists()
        lines.append(str(fault) if is_of_no_file else f"{file}: {fault}")
    return lines


def warn_without_imports(config: Config, warn: Callable[[str], None] = output.print_warning) -> None:
    """Warn if the configuration names no modules to import. Without them, the fleet cannot run any task."""
    if not config.imports:
        warn('no modules to import, so no task can run: set imports = ["your.tasks"], or name them after `run`')


# The checks that commands make, and the conversion of errors into failures


def check_usage(*faults: str | None) -> None:
    """Raise Failure with code 2 if the command line has faults. The failure lists all `faults` that are neither empty
    nor None. If there are none, nothing is raised.
    """
    if found := [fault for fault in faults if fault]:
        raise Failure(ExitCode.USAGE, *found)


@contextlib.contextmanager
def failing(codes: Mapping[type[Exception], ExitCode]) -> Iterator[None]:
    """If the block raises an error whose class is in `codes`, raise a Failure with that exit code and the error's text
    instead.
    """
    try:
        yield
    except tuple(codes) as error:
        code = next(code for kind, code in codes.items() if isinstance(error, kind))
        raise Failure(code, str(error)) from None


def check_id(task_id: str) -> None:
    """Check that the text is a valid id. Raises Failure with code 2 if it is not."""
    check_usage(fault_in_name("id", task_id))


def require_known(found: "TaskStatus") -> None:
    """Raise Failure with code 1 if nothing is known about a task. The message lists possible reasons."""
    if found.state is State.UNKNOWN:
        raise Failure(ExitCode.NO, f'the server knows nothing about a task "{found.id}": {found.why}')


# The common options


def _remember(context: click.Context, option: click.Parameter, value: Any) -> None:
    if value and option.name:
        setattr(context.ensure_object(CliState), option.name, value)


_OPTIONS = (
    click.Option(
        ["-c", "--config", "config_file"],
        metavar="FILE",
        help="The configuration file [ROTA_CONFIG, otherwise ./rota.toml].",
        expose_value=False,
        callback=_remember,
    ),
    click.Option(["--json"], is_flag=True, help="Write data as JSON.", expose_value=False, callback=_remember),
    click.Option(
        ["--no-color"], is_flag=True, help="Write without colors [NO_COLOR].", expose_value=False, callback=_remember
    ),
)


def _complete(command: click.Command) -> None:
    command.context_settings["help_option_names"] = ["-h", "--help"]
    command.params += _OPTIONS


class RotaCommand(click.Command):
    """A command with the common options."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _complete(self)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx  # so that the message refers to this command's help
            raise


class RotaGroup(click.Group):
    """A group of commands with the common options. If the group is called without a command, its help is shown."""

    command_class = RotaCommand

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _complete(self)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            output.put(ctx.get_help())
            ctx.exit()
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not (ctx.resilient_parsing or name.startswith("-") or self.get_command(ctx, name)):
            ctx.fail(f"No such command {name!r}{self.advice(name) or self._nearest(ctx, name)}")
        return super().resolve_command(ctx, args)

    def _nearest(self, ctx: click.Context, name: str) -> str:
        known = self.list_commands(ctx)
        there = f"there are {', '.join(known)}" if len(known) > 1 else f"the only command is {known[0]}"
        return suggestion(name, known) or f": {there}"

    def advice(self, name: str) -> str:
        """Return advice for a user who wrote a command of another system, or "" if there is no advice for this name."""
        del name
        return ""


# Numbers, durations and times on the command line


class WholeNumber(click.IntRange):
    """The type of an option that takes a whole number of at least `min`, and at most `max` unless `max` is None."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            self.fail(f"expected a whole number{_bounds_of(self)}, got {str(value)!r}", param, ctx)


class DecimalNumber(click.FloatRange):
    """The type of an option that takes a number of at least `min`, and at most `max` unless `max` is None."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            self.fail(f"expected a number{_bounds_of(self)}, got {str(value)!r}", param, ctx)


def _bounds_of(kind: click.IntRange | click.FloatRange) -> str:
    return f", {kind.min:g} or more" if kind.max is None else f" from {kind.min:g} to {kind.max:g}"


class _DurationOption(click.ParamType):  # type: ignore[type-arg]  # older versions of click have no type argument
    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        found = _DURATION.fullmatch(str(value).strip().lower())
        if not found or found[2] not in _SECONDS:
            negative = "; a duration cannot be negative" * str(value).startswith("-")
            what = "seconds, or a number with ms, s, m, h or d, as in 90 or 1.5h"
            self.fail(f"{value!r} is not a duration: {what}{negative}", param, ctx)
        try:
            return seconds(float(found[1]) * _SECONDS[found[2]], "a duration")
        except ValueError as error:
            self.fail(str(error), param, ctx)


class _TimeOption(click.ParamType):  # type: ignore[type-arg]  # older versions of click have no type argument
    name = "time"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        try:
            when = datetime.fromisoformat(str(value))
            unix_microseconds(when, str(value))
        except ValueError as error:
            zoned = "has no time zone" in str(error)
            lack = "has no time zone" if zoned else "is not a time"
            self.fail(f"{value!r} {lack}: write it as 2027-01-31T09:00+01:00, or with Z for UTC", param, ctx)
        return when


DURATION: Final = _DurationOption()
"""A number of seconds, or a number with its unit. The value is converted to seconds."""

MOMENT: Final = _TimeOption()
"""A time in ISO 8601 with its time zone, which is converted to a datetime."""
