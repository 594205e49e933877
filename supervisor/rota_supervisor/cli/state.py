"""What every command shares: the common options, and the configuration loaded once."""

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import click

from rota_supervisor.cli.output import say_warning
from rota_supervisor.config.faults import ConfigError, Fault
from rota_supervisor.config.load import NO_FLAGS, Flags, Loaded, load_config, sources_of
from rota_supervisor.config.model import Config
from rota_supervisor.exits import ExitCode, Failure

F = TypeVar("F", bound=Callable[..., Any])
HELP_NAMES = {"help_option_names": ["-h", "--help"]}


@dataclass(slots=True)
class CliState:
    """The common options, wherever on the command line they stood; and whether this process became a master."""

    config_file: str | None = None
    json: bool = False
    no_color: bool = field(default_factory=lambda: bool(os.environ.get("NO_COLOR")))
    is_master: bool = False

    @property
    def has_file(self) -> bool:
        """Whether there is a configuration file, in its usual place or where somebody said."""
        return sources_of(self.config_file).file.exists()

    def load(self, flags: Flags = NO_FLAGS) -> Loaded:
        """Load the configuration. Raises Failure 78 with every fault."""
        sources = sources_of(self.config_file, flags)
        try:
            return load_config(sources)
        except ConfigError as error:
            raise Failure(ExitCode.CONFIG, *config_messages(error, sources.file)) from None

    def load_what_can_be(self) -> tuple[Config, list[str]]:
        """The configuration and its faults: a fleet must be within reach while somebody mends its file."""
        sources = sources_of(self.config_file)
        try:
            return load_config(sources).config, []
        except ConfigError as error:
            return error.usable, config_messages(error, sources.file)


def config_messages(error: ConfigError, file: Path) -> list[str]:
    """A line a fault: with the file it stands in, or where else it came from."""
    return [str(fault) if _is_of_no_file(fault, file) else f"{file}: {fault}" for fault in error.faults]


def _is_of_no_file(fault: Fault, file: Path) -> bool:
    is_elsewhere = bool(fault.origin) or fault.path.startswith(("ROTA_", "-"))  # a variable, a flag
    return is_elsewhere or fault.path == str(file) or not file.exists()


def warn_all(loaded: Loaded) -> None:
    """Say the warnings of a configuration."""
    for warning in loaded.warnings:
        say_warning(warning)


def warn_without_imports(loaded: Loaded) -> None:
    """Say that a fleet which imports nothing can run nothing."""
    if not loaded.config.imports:
        say_warning('no modules to import, so no task can run: set imports = ["your.tasks"], or name them after `run`')


def common_options(command: F) -> F:
    """Add -c, --json and --no-color to a command or a group."""

    @click.option("-c", "--config", metavar="FILE", help="The configuration [ROTA_CONFIG, else ./rota.toml].")
    @click.option("--json", "as_json", is_flag=True, help="Write data as JSON.")
    @click.option("--no-color", is_flag=True, help="Write no colors [NO_COLOR].")
    @functools.wraps(command)
    def with_options(*args: Any, config: str | None, as_json: bool, no_color: bool, **kwargs: Any) -> Any:
        state = click.get_current_context().ensure_object(CliState)
        state.config_file = config or state.config_file
        state.json = as_json or state.json
        state.no_color = no_color or state.no_color
        return command(*args, **kwargs)

    return with_options  # type: ignore[return-value]  # the same signature but for the options taken off here


def current_state() -> CliState:
    """The state of the running command."""
    return click.get_current_context().ensure_object(CliState)
