"""The example in examples/django with a real fleet. A view enqueues tasks in a transaction, and workers run tasks that
use the ORM. The test adds an async task, and tasks of Django's own task framework, to the example.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from rota import Client
from support.fleet_process import DEADLINE_SECONDS, FleetProcess, environment
from support.prose import ROOT
from support.servers import Server, free_port, server_binaries
from support.waiting import until

_FRAMEWORK = "django.tasks" if sys.version_info >= (3, 12) else "django_tasks"
_SETTINGS = f"""
INSTALLED_APPS += ["{_FRAMEWORK}"] if "{_FRAMEWORK}" == "django_tasks" else []
TASKS = {{
    "default": {{
        "BACKEND": "rota.contrib.django.tasks.RotaBackend",
        "QUEUES": [],
        "OPTIONS": {{"retries": 0, "priority_queues": {{50: "urgent"}}}},
    }}
}}
"""
_TASKS = f"""
from {_FRAMEWORK} import task


@task
def add(a, b):
    return a + b


@task(takes_context=True)
async def echo(context, word):
    return [context.task_result.id, context.attempt, word]


@task
def fail():
    raise ValueError("no good")


@rota.task
async def count_orders() -> int:
    return await Order.objects.acount()
"""
_DECLARE = "import json, time; from orders.tasks import add, fail, echo"


class Shop(FleetProcess):
    """A copy of the example in a folder, with its web process, and its fleet, which `manage.py rota run` starts."""

    def __init__(self, folder: Path, server: Server) -> None:
        super().__init__(folder)
        self.command = [sys.executable, "manage.py", "rota"]
        self.client = Client(server.url, "shop")
        self.environment = {
            "ROTA_REDIS_URL": server.url,
            "ROTA_HTTP__LISTEN": "127.0.0.1:0",
            "ROTA_CONTROL__SOCKET": str(folder / "control"),
            "ROTA_TIERS": '[["urgent", "default"]]',
            "DJANGO_SETTINGS_MODULE": "shop.settings",
        }
        self.port = free_port()
        self.web: subprocess.Popen[bytes] | None = None

    def manage(self, *arguments: str) -> str:
        """Run a `manage.py` command, and wait until it has ended. Returns its output."""
        done = subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=self.folder,
            env=environment(self.folder, **self.environment),
            capture_output=True,
            text=True,
            timeout=DEADLINE_SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def serve(self) -> None:
        """Start the web process, and wait until it responds."""
        argv = [sys.executable, "manage.py", "runserver", "--noreload", f"127.0.0.1:{self.port}"]
        with (self.folder / "web.log").open("wb") as log:
            env = environment(self.folder, **self.environment)
            self.web = subprocess.Popen(argv, cwd=self.folder, env=env, stdout=log, stderr=log)
        until(lambda: self.get_json("/orders/0/")[0] == 404, "the web process responds", DEADLINE_SECONDS)

    def get_json(self, path: str, **form: str) -> tuple[int, Any]:
        """Send a request, and return the status and the JSON content of the response. The request is a POST if there
        are form fields. The status is 0 if the server does not respond.
        """
        data = urllib.parse.urlencode(form).encode() if form else None
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", data, DEADLINE_SECONDS) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as refusal:
            with refusal:
                return refusal.code, None
        except urllib.error.URLError:
            return 0, None

    def order(self, amount: int) -> tuple[int, Any]:
        return self.get_json("/orders/", customer="Ann", amount=str(amount))

    def accepted(self) -> int:
        """Return how many tasks the namespace has ever accepted."""
        return sum(queue.accepted for queue in self.client.queues())

    def close(self) -> None:
        self.client.close()
        for process in (self.process, self.web):
            if process is not None and process.poll() is None:
                process.send_signal(signal.SIGQUIT if process is self.process else signal.SIGTERM)
                process.wait(DEADLINE_SECONDS)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """Yield the example when its database, its web process and its fleet are ready. It includes the additional tasks of
    this test.
    """
    folder = tmp_path_factory.mktemp("django") / "shop"
    shutil.copytree(ROOT / "examples/django", folder, ignore=shutil.ignore_patterns("*.sqlite3", "__pycache__"))
    for name, more in (("shop/settings.py", _SETTINGS), ("orders/tasks.py", _TASKS)):
        (folder / name).write_text((folder / name).read_text() + more)
    server = Server(server_binaries()["valkey"], tmp_path_factory.mktemp("server")).start()
    made = Shop(folder, server)
    try:
        made.manage("migrate", "--verbosity=0")
        made.launch()
        made.serve()
        until(lambda: made.has_ended() or len(made.workers()) == 2, "a fleet that is ready", DEADLINE_SECONDS)
        assert not made.has_ended(), made.log_text()
        yield made
    finally:
        made.close()
        server.stop()


def test_an_order_placed_in_a_request_is_confirmed_by_the_fleet(shop: Shop) -> None:
    status, placed = shop.order(7)
    assert status == 201
    assert shop.client.wait(placed["task"], DEADLINE_SECONDS).state == "done"
    assert shop.get_json(f"/orders/{placed['order']}/") == (200, {"state": "confirmed"})


def test_a_request_that_is_rolled_back_enqueues_nothing(shop: Shop) -> None:
    before = shop.accepted()
    assert shop.order(7000)[0] == 500
    assert (shop.accepted(), shop.order(7)[0], shop.accepted()) == (before, 201, before + 1)


def test_no_database_connection_outlives_its_task(shop: Shop) -> None:
    orders = [shop.order(amount)[1] for amount in range(20)]
    counts = [shop.client.enqueue("count_orders", queue="default", kwargs={}) for _ in range(4)]
    for task_id in [order["task"] for order in orders] + [count.id for count in counts]:
        assert shop.client.wait(task_id, DEADLINE_SECONDS).state == "done"
    database = str(shop.folder / "shop.sqlite3")
    opened = [file.path for pid in shop.workers() for file in psutil.Process(pid).open_files()]
    assert database not in opened


def test_tasks_of_the_django_framework_run_and_return_results(shop: Shop) -> None:
    output = shop.manage(
        "shell",
        "--verbosity=0",
        "-c",
        f"""{_DECLARE}
results = [add.enqueue(2, b=3), echo.using(priority=60).enqueue("hi"), fail.enqueue()]
assert [each.status for each in results] == ["READY"] * 3
deadline = time.monotonic() + {DEADLINE_SECONDS}
while not all(each.is_finished for each in results) and time.monotonic() < deadline:
    [each.refresh() for each in results]
added, echoed, failed = results
print(json.dumps([added.return_value, echoed.return_value == [echoed.id, 1, "hi"], failed.status, failed.attempts]))
print(json.dumps([failed.errors[0].exception_class.__name__, "in fail" in failed.errors[0].traceback]))
print(json.dumps(add.get_result(added.id).status))""",
    )
    assert [json.loads(line) for line in output.splitlines()] == [
        [5, True, "FAILED", 1],
        ["ValueError", True],
        "SUCCESSFUL",
    ]


def test_manage_py_rota_uses_the_settings_of_the_project(shop: Shop) -> None:
    assert json.loads(shop.manage("rota", "status", "--json"))["fleet"] == "shop"
    assert {"confirm_order", "orders.tasks.add"} <= set(json.loads(shop.manage("rota", "check", "--json"))["tasks"])
    assert "default" in shop.manage("rota", "--settings=shop.settings", "queue", "ls")


def test_wrong_settings_are_reported_before_anything_starts(shop: Shop) -> None:
    (shop.folder / "wrong.py").write_text("from shop.settings import *\nROTA['redis_ulr'] = ROTA.pop('redis_url')\n")
    done = subprocess.run(
        [sys.executable, "manage.py", "rota", "run", "--settings", "wrong"],
        cwd=shop.folder,
        env=os.environ | shop.environment,
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert (done.returncode, "Did you mean 'redis_url'?" in done.stderr) == (os.EX_CONFIG, True)
