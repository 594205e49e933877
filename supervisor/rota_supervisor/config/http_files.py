"""The files of `[http]`: its token, certificate and key. The exporter reads them; here is seen to it that it can."""

from pathlib import Path
from typing import Final

from rota_supervisor.config.faults import Fault
from rota_supervisor.config.layers import Layer

LEAST_TOKEN_BYTES: Final = 16
_KEYS: Final = ("token_file", "tls_cert", "tls_key")


def place_http_files(merged: Layer, folder: Path) -> list[Fault]:
    """Make the paths in the merged values absolute, from `folder` on, and return what is wrong with the files."""
    table = merged.values.get("http")
    if not isinstance(table, dict):
        return []
    faults: list[Fault] = []
    for key in _KEYS:
        path = table.get(key)
        if path and isinstance(path, str) and "\0" not in path:
            file = (folder / path).absolute()
            table[key] = str(file)
            faults += [Fault(f"http.{key}", fault) for fault in _faults_of(file, key)]
    return faults


def _faults_of(file: Path, key: str) -> list[str]:
    try:
        content = file.read_bytes()
    except OSError as error:
        return [f"{file} cannot be read: {error.strerror}"]
    if key == "token_file" and not (len(content.split()) == 1 and len(content.strip()) >= LEAST_TOKEN_BYTES):
        return [
            f"{file} holds no token: one word of at least {LEAST_TOKEN_BYTES} characters, as of `openssl rand -hex 32`"
        ]
    return []
