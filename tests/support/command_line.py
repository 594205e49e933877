"""A function that runs the command `rota` in this process and in a separate folder, and returns its result."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rota_supervisor.cli.app import run_app
from support.servers import Server


class Ran(NamedTuple):
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The JSON document that the command printed, if it was run with --json."""
        return json.loads(self.out)


Rota = Callable[..., Ran]


def rota_in(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Rota:
    """Return a function that runs `rota` in a folder. Its positional arguments are the words of the command line, and
    its keyword arguments are environment variables.
    """
    for name in [name for name in os.environ if name.startswith(("ROTA_", "REDIS_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    monkeypatch.chdir(folder)

    def run(*arguments: str, **environment: str) -> Ran:
        with monkeypatch.context() as patched:
            for name, value in environment.items():
                patched.setenv(name, value)
            code = run_app(arguments)
        return Ran(code, *capsys.readouterr())

    return run


def write_configuration(folder: Path, server: Server, namespace: str) -> None:
    """Write a `rota.toml` that names a server and a namespace, and nothing else."""
    (folder / "rota.toml").write_text(f'redis_url = "{server.url}"\nnamespace = "{namespace}"\n')
