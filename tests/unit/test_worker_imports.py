"""The processes of a fleet stay small, because they import no unnecessary modules."""

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from support.prose import ROOT

_HEAVY = (
    "asyncio",
    "redis",
    "rich",
    "click",
    "pydantic",
    "msgspec",
    "psutil",
    "prometheus_client",
    "ssl",
    "cronsim",
    "zoneinfo",
    "rota_supervisor",
)


@pytest.mark.parametrize("role", ["rota.worker", "rota.poller"])
def test_workers_and_pollers_import_no_heavy_module(role: str, tmp_path: Path) -> None:
    assert _loaded_by(f"import {role}", _HEAVY, tmp_path) == []


def test_a_starting_child_imports_neither_metrics_nor_tls_modules(tmp_path: Path) -> None:
    assert _loaded_by("import rota_supervisor.child_start", ("asyncio", "prometheus_client", "ssl"), tmp_path) == []


def _loaded_by(script: str, modules: Sequence[str], folder: Path) -> list[str]:
    program = f"{script}\nimport sys; print(*[name for name in {modules!r} if name in sys.modules])"
    answer = subprocess.run(
        [sys.executable, "-P", "-c", program], cwd=folder, capture_output=True, text=True, check=True
    )
    return answer.stdout.split()


def test_no_module_of_rota_writes_to_sys_modules() -> None:
    writes = re.compile(r"sys\.modules(\[[^]]*\]\s*=[^=]|\.(update|setdefault|pop|clear)\b)|del sys\.modules")
    files = [*(ROOT / "workers").rglob("*.py"), *(ROOT / "supervisor").rglob("*.py")]
    assert [str(file) for file in files if writes.search(file.read_text())] == []
