"""The types of the public names, checked by mypy in strict mode."""

from pathlib import Path

import pytest
from mypy import api

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]


@pytest.mark.parametrize("name", ["client_types.py", "client_type_errors.py", "testing_types.py"])
def test_valid_calls_type_check_and_invalid_ones_do_not(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    output, errors, status = api.run(["--config-file", "pyproject.toml", str(FOLDER / name)])
    assert (output.splitlines()[-1:], errors, status) == (["Success: no issues found in 1 source file"], "", 0), output
