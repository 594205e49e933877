"""The errors that `rota run` reports before a master starts."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import click
import pytest

from rota_supervisor.cli.run_verbs import run


def test_without_watchfiles_rota_run_reload_names_the_extra_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "watchfiles" else find(name))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(click.UsageError, match=r"rota\[reload\]"):
        run.main(["--reload", "tasks"], standalone_mode=False)


def test_a_command_whose_dependency_is_missing_names_the_package_to_install() -> None:
    program = (
        "import sys; sys.modules['click'] = None; sys.argv = ['rota', 'status'];"
        "from rota_supervisor.__main__ import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (78, "")
    assert done.stderr == "rota: error: this command needs click, which is not installed: pip install rota\n"
