"""The files that the configuration names for TLS and for the token: where they are, and whether they can be read.

The processes that use them read them, and again when they change.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from rota.tasks.fleet_settings import read_settings_file
from rota_supervisor.config.faults import Fault
from rota_supervisor.config.layers import Layer

LEAST_TOKEN_BYTES: Final = 16
_OF_SERVER: Final = ("redis_tls_ca", "redis_tls_cert", "redis_tls_key")
_OF_HTTP: Final = ("token_file", "tls_cert", "tls_key")


def place_files(merged: Layer, folder: Path) -> list[Fault]:
    """Make the paths in the merged values absolute, from `folder` on, and return what is wrong with the files."""
    http = merged.values.get("http")
    of_http = _place(http, _OF_HTTP, "http.", folder) if isinstance(http, dict) else []
    return _place(merged.values, _OF_SERVER, "", folder) + of_http


def _place(table: dict[str, Any], keys: Iterable[str], at: str, folder: Path) -> list[Fault]:
    faults: list[Fault] = []
    for key in keys:
        path = table.get(key)
        if path and isinstance(path, str) and "\0" not in path:
            file = (folder / path).absolute()
            table[key] = str(file)
            faults += [Fault(f"{at}{key}", fault) for fault in _faults_of(file, key)]
    return faults


def _faults_of(file: Path, key: str) -> list[str]:
    try:
        content = read_settings_file(file)
    except OSError as error:
        return [f"{file} cannot be read: {error.strerror}"]
    if key == "token_file" and not (len(content.split()) == 1 and len(content.strip()) >= LEAST_TOKEN_BYTES):
        return [
            f"{file} holds no token: one word of at least {LEAST_TOKEN_BYTES} characters, as of `openssl rand -hex 32`"
        ]
    return []
