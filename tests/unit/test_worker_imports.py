"""The processes of a fleet stay small: what they must not import, they do not."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from servers import free_port

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


# Later versions of Python look at each dataclass with inspect.
_OF_DATACLASSES = ("inspect",) if sys.version_info < (3, 12) else ()


@pytest.mark.parametrize("role", ["rota.worker", "rota.poller"])
def test_a_child_imports_nothing_heavy(role: str, tmp_path: Path) -> None:
    assert _loaded_by(f"import {role}", _HEAVY, tmp_path) == []


@pytest.mark.parametrize("role", ["poller", "exporter.__main__"])
def test_a_spawned_child_does_without_what_its_libraries_bring_for_other_uses(role: str, tmp_path: Path) -> None:
    of_tls = ("ssl", "_hashlib")
    of_http = ("ipaddress", "html.entities", "http.server", "urllib.request", "platform")
    without = (*of_tls, *of_http, *_OF_DATACLASSES)
    assert _loaded_by(f"import rota_supervisor.{role}", without, tmp_path) == []


@pytest.mark.parametrize(("scheme", "loaded"), [("redis", ["asyncio"]), ("rediss", ["asyncio", "ssl"])])
def test_a_master_loads_ssl_only_to_talk_with_tls_and_does_without_inspect(
    tmp_path: Path, scheme: str, loaded: list[str]
) -> None:
    (tmp_path / "rota.toml").write_text(f'''redis_url = "{scheme}://127.0.0.1:{free_port()}/0"
[control]
socket = "{tmp_path}/control.sock"
''')
    script = "from rota_supervisor.cli.app import run_app; assert run_app(['run']) == 69"
    assert _loaded_by(script, ("asyncio", "ssl", "typing_extensions", *_OF_DATACLASSES), tmp_path) == loaded


def _loaded_by(script: str, modules: Sequence[str], folder: Path) -> list[str]:
    told = f"{script}\nimport sys; print(*[name for name in {modules!r} if name in sys.modules])"
    answer = subprocess.run([sys.executable, "-P", "-c", told], cwd=folder, capture_output=True, text=True, check=True)
    return answer.stdout.split()
