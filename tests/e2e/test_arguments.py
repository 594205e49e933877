"""Typed arguments and results in a real fleet, and arguments that are not valid. One of the enqueuing programs has only
Rota installed.
"""

import json
import os
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest

import rota
from support import typed_tasks
from support.fleet_process import DEADLINE_SECONDS
from support.fleets import UNSIGNED, Fleets, RunningFleet
from support.typed_tasks import Guest, Note, Parcel, Size, count_up, double, remind, send_back

ROOT = Path(__file__).resolve().parents[2]
NOW = datetime(2026, 3, 4, 5, 6, 7, 89, tzinfo=UTC)

SLIM = """
import asyncio, datetime, json, sys
import rota
import rota.testing

@rota.task(result_ttl=60)
def double(number: int) -> int: ...

@rota.task(cron="*/5 * * * *")
def refresh() -> None: ...

@rota.task
def remind(at: "datetime.datetime") -> None: ...

rota.configure(redis_url=sys.argv[1], namespace=sys.argv[2])
told = {"doubled": double.enqueue(21).result(60), "ids": [each.id for each in rota.enqueue_many([double.call(1)])]}
try:
    remind.enqueue(datetime.datetime.now(datetime.UTC))
except rota.InvalidArguments as error:
    told["typed"] = str(error)
with rota.Client(sys.argv[1], sys.argv[2]) as client:
    wrong = client.enqueue("send_back", args=["2026-01-01T00:00:00Z", {"lines": [{"count": "2"}]}],
                           kwargs={"box": [1, 2]}, queue="default")
    told["wrong"] = wrong.id
    double.using(queue="by-hand").enqueue(4)
    with client.consumer("by-hand") as consumer, next(consumer) as task:
        told["taken"] = task.args
async def on_a_loop():
    async with rota.AsyncClient(sys.argv[1], sys.argv[2]) as client:
        handle = await client.enqueue(double.call(8))
        return await handle.result(60)

told["awaited"] = asyncio.run(on_a_loop())
with rota.testing.capture() as captured:
    double.enqueue(5)
captured.assert_enqueued(double, args=[5])
print(json.dumps(told))
"""


@pytest.fixture(scope="session")
def slim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a virtual environment in which only Rota's wheel is installed."""
    folder = tmp_path_factory.mktemp("slim")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", folder, ROOT], check=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "env"], check=True)
    [wheel] = folder.glob("rota-*.whl")
    target = ["--python", str(folder / "env/bin/python")]
    subprocess.run([*pip, *target, "install", "--no-deps", wheel], check=True)
    return folder / "env/bin"


def run(slim: Path, *command: str) -> "subprocess.CompletedProcess[str]":
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("ROTA_", "PYTHON"))}
    return subprocess.run(
        [slim / command[0], *command[1:]], capture_output=True, text=True, env=environment, check=False, cwd=slim
    )


def typed_fleet(fleets: Fleets) -> RunningFleet:
    fleet = fleets.make(imports=["tasks", "typed_tasks"], signing=UNSIGNED)
    shutil.copyfile(typed_tasks.__file__, fleet.folder / "typed_tasks.py")
    return fleet.start()


def annotated_values_arrive_unchanged(fleet: RunningFleet) -> None:
    note, ids = Note(text="n", at=NOW.time()), {"one": UUID(int=1)}
    sent = send_back.using(client=fleet.client).enqueue(
        NOW, Parcel(), Size.SMALL, Size.LARGE, box=(1, 2.5), note=note, **ids
    )
    assert sent.result(DEADLINE_SECONDS) == (NOW, Parcel(), (Size.SMALL, Size.LARGE), (1, 2.5), note, ids)
    counted = count_up.using(client=fleet.client).enqueue(1, Guest(name="g", since=NOW))
    assert counted.result(DEADLINE_SECONDS) == Guest(name="g2", since=NOW)
    assert double.using(client=fleet.client).enqueue(4, None).result(DEADLINE_SECONDS) == 8
    assert fleet.client.enqueue("remind", args=[NOW]).result(DEADLINE_SECONDS) == NOW
    assert remind.schedules[0].args == ("2026-05-01T00:00:00Z",)
    assert fleet.client.schedules.run_now("typed").result(DEADLINE_SECONDS) == datetime(2026, 5, 1, tzinfo=UTC)


def a_program_with_only_redis_py_enqueues_and_claims(fleet: RunningFleet, slim: Path) -> None:
    done = run(slim, "python", "-c", SLIM, fleet.url, fleet.namespace)
    assert done.returncode == 0, done.stderr
    output = json.loads(done.stdout)
    assert (output["doubled"], output["awaited"], output["taken"]) == (42, 16, [4])
    assert "its conversion requires msgspec, which is not installed: pip install msgspec" in output["typed"]
    status = fleet.client.wait(output["wrong"], DEADLINE_SECONDS)
    assert (status.state, status.attempt) == ("dead", 1)
    assert status.death is not None
    assert status.death["reason"] == "arguments"
    assert status.death["error"] == (
        "send_back: parcel.lines[0].count is refused: expected int, got str (parcel is annotated as Parcel, got dict)"
    )


def a_command_names_the_package_to_install(slim: Path) -> None:
    done = run(slim, "rota", "run")
    assert (done.returncode, done.stdout) == (78, "")
    assert "this command needs click, which is not installed: pip install rota" in done.stderr
    assert "Traceback" not in done.stderr


def test_typed_arguments_reach_the_task_unchanged_or_are_refused(fleets: Fleets, slim: Path) -> None:
    fleet = typed_fleet(fleets)
    annotated_values_arrive_unchanged(fleet)
    a_program_with_only_redis_py_enqueues_and_claims(fleet, slim)
    a_command_names_the_package_to_install(slim)
    with pytest.raises(rota.InvalidArguments, match="at is a datetime without a time zone"):
        remind.using(client=fleet.client).enqueue(NOW.replace(tzinfo=None))
    assert fleet.books_balance()
