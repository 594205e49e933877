"""The import of the application's code by the zygote: where the code is found, and which errors are reported if the
import fails.
"""

import sys
import sysconfig
from pathlib import Path

import pytest

from rota_supervisor.task_modules import import_all, make_importable


def _write(folder: Path, name: str, text: str) -> str:
    (folder / f"{name}.py").write_text(text)
    return name


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    return tmp_path


def test_the_applications_folder_precedes_installed_packages_but_not_stdlib(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library, installed = sysconfig.get_path("stdlib"), sysconfig.get_path("purelib")
    monkeypatch.setattr(sys, "path", [library, installed])
    make_importable([str(tmp_path)])
    assert sys.path == [library, str(tmp_path), installed]
    make_importable([str(tmp_path)])
    assert sys.path == [library, str(tmp_path), installed]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("\nraise RuntimeError('no')", "RuntimeError: no"),
        ("\nraise SystemExit(3)", "SystemExit: 3"),
        ("\nimport nowhere_at_all", "ModuleNotFoundError: No module named 'nowhere_at_all'"),
        ("\ndef broken(:", "SyntaxError"),
    ],
    ids=["raises", "exits", "misses", "does not parse"],
)
def test_a_failed_import_is_reported_with_module_error_and_line(folder: Path, text: str, error: str) -> None:
    name = _write(folder, f"failing_{abs(hash(text))}", text)
    failure = import_all([name])
    assert failure is not None
    assert failure.module == name
    assert failure.error.startswith(error)
    assert failure.where == f"{folder / name}.py:2"


def test_no_module_is_imported_after_a_failed_import(folder: Path) -> None:
    first = _write(folder, "first_to_fail", "raise ValueError")
    second = _write(folder, "never_reached", "raise ValueError")
    failure = import_all([first, second])
    assert failure is not None
    assert failure.module == first
    assert second not in sys.modules
