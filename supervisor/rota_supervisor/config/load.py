"""Load the configuration: defaults < file < environment < flags, with every fault at once."""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rota.redaction import may_hold_credentials
from rota_supervisor.config.convert import convert_config
from rota_supervisor.config.environment import CONFIG_VARIABLE, read_environment
from rota_supervisor.config.faults import ConfigError, Fault
from rota_supervisor.config.flags import NO_FLAGS, Flags, flag_faults, flag_layer, with_selected_pools, without_unserved
from rota_supervisor.config.idle import warnings_of_idle_keys
from rota_supervisor.config.layers import MOST_LEVELS, Layer, dotted, is_too_deep, layer_of, merge
from rota_supervisor.config.model import Config
from rota_supervisor.config.resolve import warnings_of_pools
from rota_supervisor.config.rules import broken_rules
from rota_supervisor.config.server_url import choose_server_url

DEFAULT_FILE = "rota.toml"
TIERS_VARIABLE = "ROTA_TIERS"
_TOO_DEEP = f"has tables and lists nested more than {MOST_LEVELS} levels deep: no setting is"
FALLBACK_URL_VARIABLE = "REDIS_URL"  # what hosting platforms set; below the file, as for applications


@dataclass(frozen=True, slots=True)
class Sources:
    """Where a configuration comes from. `required`: the file was asked for, so that its absence is a fault."""

    file: Path = Path(DEFAULT_FILE)
    required: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    flags: Flags = NO_FLAGS


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration that can be used, where its values came from (by dotted path), and warnings. `content`: of the
    file, None when there is none."""

    config: Config
    origins: Mapping[str, str]
    warnings: tuple[str, ...]
    content: bytes | None = None


def sources_of(file: str | None, flags: Flags = NO_FLAGS) -> Sources:
    """The sources of this process: the file given, else in ROTA_CONFIG, else ./rota.toml."""
    chosen = file or os.environ.get(CONFIG_VARIABLE)
    return Sources(Path(chosen or DEFAULT_FILE), chosen is not None, dict(os.environ), flags)


def load_config(sources: Sources) -> Loaded:
    """Load and check everything. Raises ConfigError with every fault there is."""
    content, file_values, file_faults = _read_file(sources)
    environment = read_environment(sources.environment, _names(file_values, sources))
    layers = [_fallback_layer(sources.environment), layer_of(file_values, f"file {sources.file}"), environment.layer]
    lower = merge(layers)
    merged = merge([lower, flag_layer(sources.flags, lower.values)])
    faults = file_faults + flag_faults(sources.flags, lower.values) + environment.faults
    faults += choose_server_url(layers, merged, sources.file.parent)
    config, more_faults = convert_config(without_unserved(sources.flags, merged.values))
    faults += more_faults
    faults += broken_rules(config, {_top(fault.path) for fault in faults})
    if faults:
        # Without its file the rest is judged by the wrong neighbours.
        told = file_faults or [_with_origin(fault, merged, sources.file) for fault in faults]
        raise ConfigError(told, config, content)
    warnings = (*environment.warnings, *warnings_of_idle_keys(config), *warnings_of_pools(config))
    config = with_selected_pools(sources.flags, config)
    return Loaded(config, _dotted_origins(merged), warnings, content)


def _read_file(sources: Sources) -> tuple[bytes | None, dict[str, Any], list[Fault]]:
    """The content of the file and its values, or what is wrong with it as a whole."""
    if may_hold_credentials(str(sources.file)):
        return None, {}, [Fault("-c, ROTA_CONFIG", "expected the path of a file, got what looks like a URL")]
    content = None
    try:
        content = sources.file.read_bytes()
        values = tomllib.loads(content.decode())
        if not is_too_deep(values):
            return content, values, []
        message = _TOO_DEEP
    except FileNotFoundError:
        message = "there is no such file; `rota init` writes one" if sources.required else ""
    except OSError as error:
        message = f"cannot be read: {error.strerror}"
    except UnicodeDecodeError:
        message = "is not UTF-8 text"
    except RecursionError:
        message = _TOO_DEEP
    except ValueError as error:  # TOMLDecodeError, and a number of thousands of digits
        message = f"is not valid TOML: {error}"
    return content, {}, [Fault(str(sources.file), message)] if message else []


def _names(file_values: Mapping[str, Any], sources: Sources) -> dict[str, list[str]]:
    """The names that variables may mean, by table: queues stand in the tiers of any source."""
    names = {key: list(table) for key, table in file_values.items() if isinstance(table, dict)}
    of_tiers = {key: text for key, text in sources.environment.items() if key == TIERS_VARIABLE}
    for tiers in (
        file_values.get("tiers"),
        read_environment(of_tiers, {}).layer.values.get("tiers"),
        sources.flags.tiers,
    ):
        names["queues"] = [*names.get("queues", ()), *_texts_in(tiers)]
    return names


def _texts_in(tiers: Any) -> list[str]:
    listed = [tier for tier in tiers if isinstance(tier, list | tuple)] if isinstance(tiers, list | tuple) else []
    return [queue for tier in listed for queue in tier if isinstance(queue, str)]


def _fallback_layer(environment: Mapping[str, str]) -> Layer:
    url = environment.get(FALLBACK_URL_VARIABLE)
    return layer_of({"redis_url": url}, f"environment {FALLBACK_URL_VARIABLE}") if url else Layer()


def _top(path: str) -> str:
    return path.removeprefix("ROTA_").partition(".")[0].partition("[")[0].partition("__")[0].lower()


def _with_origin(fault: Fault, merged: Layer, file: Path) -> Fault:
    """Say where the value stands when that is not the file."""
    for path, origin in merged.origins.items():
        at = dotted(path)
        if fault.path == at or fault.path.startswith((f"{at}.", f"{at}[")):
            return Fault(fault.path, fault.message, "" if origin == f"file {file}" else origin)
    return fault


def _dotted_origins(merged: Layer) -> dict[str, str]:
    return {dotted(path): origin for path, origin in merged.origins.items()}
