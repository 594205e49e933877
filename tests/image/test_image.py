"""The container image, built from its Dockerfile and run as an operator would run it: without privileges, on a
read-only root with one writable folder, and with 64 MB of shared memory and 256 descriptors.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import rota
from support.container_engine import BUILD_SECONDS, ContainerLimits, Engine, engine_in
from support.masters import ON_ONE_SERVER
from support.servers import Server, free_port
from support.waiting import until

pytestmark = pytest.mark.timeout(BUILD_SECONDS)

USER: Final = 10001
LEAST: Final = ContainerLimits(writable="/tmp:size=12m", shared="4k", files=64)
TASKS: Final = """
import os, time
import rota

@rota.task(result_ttl=60)
def place():
    return [os.getcwd(), os.getuid(), os.getgid(), os.getppid()]

@rota.task
def nap(seconds):
    time.sleep(seconds)
"""
WRITABLE: Final = """
import os
OF_THE_KERNEL = {"/proc", "/sys", "/dev/mqueue"}
for folder, below, _ in os.walk("/"):
    below[:] = [name for name in below if os.path.join(folder, name) not in OF_THE_KERNEL]
    if os.access(folder, os.W_OK):
        print(folder)
"""
CANNOT_BE_CREATED: Final = "the folder /tmp/rota-10001 of the control socket cannot be created: Read-only file system"
NO_TEMPORARY: Final = "the demo needs a folder to write to: No usable temporary directory found"
FEW_FILES: Final = "the limit on open files is 63 descriptors, but a fleet needs 64: raise"


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with engine_in(tmp_path_factory.mktemp("engine")) as made:
        made.build("embedded")
        yield made


@pytest.fixture
def client(server: Server, namespace: str) -> Iterator[rota.Client]:
    with rota.Client(server.url, namespace) as connected:
        yield connected


@pytest.fixture
def code(namespace: str, tmp_path: Path) -> Path:
    """Return a folder with the code of a small application."""
    folder = tmp_path / "app"
    folder.mkdir(mode=0o755)
    (folder / "tasks.py").write_text(TASKS)
    (folder / "rota.toml").write_text(f'namespace = "{namespace}"\nimports = ["tasks"]\nworkers = 2\n')
    return folder


@pytest.fixture
def fleet(engine: Engine, server: Server, namespace: str, code: Path) -> Iterator[str]:
    """Yield the name of a container whose fleet is ready."""
    environment = {"ROTA_REDIS_URL": server.url, "ROTA_HTTP__LISTEN": f"127.0.0.1:{free_port()}"}
    with engine.started(namespace, code, environment):
        until(lambda: is_healthy(engine, namespace), lambda: engine.podman("logs", namespace).stderr)
        yield namespace


def is_healthy(engine: Engine, name: str) -> bool:
    """Whether the health check of the image succeeds now."""
    return engine.podman("healthcheck", "run", name).returncode == 0


def test_image_has_user_entry_point_stop_signal_and_health_check(engine: Engine) -> None:
    image = engine.image()
    config = image["Config"]
    assert config["User"] == f"{USER}:{USER}"
    assert (config["Entrypoint"], config["Cmd"]) == (["rota"], ["run"])
    assert config["StopSignal"] == "SIGTERM"
    assert image["Healthcheck"]["Test"] == ["CMD", "rota", "health", "--ready"]


def test_only_tmp_and_shared_memory_can_be_written(engine: Engine) -> None:
    found = engine.run(ContainerLimits(), "-c", WRITABLE, entrypoint="python3")
    assert sorted(found.stdout.split()) == ["/dev/shm", "/tmp"], found.stderr


@pytest.mark.parametrize(
    ("limits", "seconds"), [(ContainerLimits(), 30), (LEAST, 6)], ids=["64 MB, 256 descriptors", "least"]
)
def test_the_demo_passes_within_the_limits(engine: Engine, limits: ContainerLimits, seconds: int) -> None:
    done = engine.run(limits, "--json", "demo", "--seconds", str(seconds))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ok"] is True


@ON_ONE_SERVER
def test_a_stopped_container_lets_its_task_end(engine: Engine, fleet: str, client: rota.Client) -> None:
    assert client.enqueue("place", queue="default").result(timeout=30)[:3] == ["/srv/app", USER, USER]
    handle = client.enqueue("nap", args=[5], queue="default")
    until(lambda: handle.status().state == "running", "the task runs")

    assert engine.podman("stop", "--time", "40", fleet).returncode == 0

    assert engine.podman("wait", fleet).stdout.strip() == "0"
    assert handle.status().state == "done"
    log = engine.podman("logs", fleet).stderr
    assert "fleet.stopped" in log
    assert "Traceback" not in log


@ON_ONE_SERVER
def test_the_health_check_fails_while_the_fleet_is_not_ready(engine: Engine, fleet: str) -> None:
    assert engine.podman("exec", fleet, "rota", "quiet").returncode == 0
    until(lambda: not is_healthy(engine, fleet), "the check fails")
    assert engine.podman("exec", fleet, "rota", "resume").returncode == 0
    until(lambda: is_healthy(engine, fleet), "the check succeeds")


@pytest.mark.parametrize(
    ("command", "limits", "refusal"),
    [
        ("run", ContainerLimits(files=63), (78, FEW_FILES)),
        ("demo", ContainerLimits(files=63), (78, FEW_FILES)),
        ("run", ContainerLimits(writable=""), (73, CANNOT_BE_CREATED)),
        ("demo", ContainerLimits(writable=""), (73, NO_TEMPORARY)),
        ("demo", ContainerLimits(writable="/tmp:size=1m"), (78, "/tmp has 1 MB free, and the demo needs 23")),
    ],
    ids=["run, descriptors", "demo, descriptors", "run, no folder", "demo, no folder", "demo, small folder"],
)
def test_a_smaller_limit_is_refused_with_its_name(
    engine: Engine, command: str, limits: ContainerLimits, refusal: tuple[int, str], code: Path
) -> None:
    exit_code, message = refusal
    done = engine.run(limits, command, volume=f"{code}:/srv/app:ro")
    assert done.returncode == exit_code, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
