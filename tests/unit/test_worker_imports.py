"""Workers and pollers stay small: what they must not import, they do not."""

import subprocess
import sys

import pytest

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
    "rota_supervisor",
)


@pytest.mark.parametrize("role", ["rota.worker", "rota.poller"])
def test_a_child_imports_nothing_heavy(role: str) -> None:
    script = f"import sys, {role}; print([name for name in {_HEAVY!r} if name in sys.modules])"
    answer = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True, check=True)
    assert answer.stdout == "[]\n"
