"""What `rota run` says before there is a master."""

import importlib.util
from pathlib import Path

import click
import pytest

from rota_supervisor.cli.run import run


def test_reloading_code_without_its_library_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "watchfiles" else find(name))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(click.UsageError, match=r"rota\[reload\]"):
        run.main(["--reload", "tasks"], standalone_mode=False)
