"""HUP: what changed is applied, nothing else is touched, and what cannot be used changes nothing."""

import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import until
from masters import ON_ONE_SERVER, TASKS, Mastered
from servers import Server

pytestmark = ON_ONE_SERVER


@pytest.fixture
def fleet(server: Server, namespace: str, tmp_path: Path) -> Iterator[Mastered]:
    made = Mastered(server, namespace, tmp_path)
    yield made
    made.close()


def _metric(fleet: Mastered, name: str) -> float:
    listen = fleet.status()["listen"]
    with urllib.request.urlopen(f"http://{listen}/metrics", timeout=10) as response:
        lines = response.read().decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith((f"{name} ", f"{name}{{")))


@pytest.mark.parametrize(
    ("broken", "path"),
    [
        ("workers = -1", "workers"),
        ("wrokers = 3", "wrokers"),
        ("workers = 2\ntiers = [['default'], ['default']]", "tiers"),
        ("workers = [", "rota.toml"),
        ("workers = 2\n[http]\nlisten = '192.0.2.1:1'", "http.listen"),
    ],
)
def test_a_file_that_cannot_be_used_changes_nothing(fleet: Mastered, broken: str, path: str) -> None:
    fleet.start()
    before = fleet.pids() if fleet.until_workers(2) else set()
    fleet.configure(broken)
    fleet.signal(signal.SIGHUP)
    rejected = until(lambda: fleet.log("config.rejected"))
    assert path in rejected[0]["path"]
    assert fleet.pids() == before
    assert _metric(fleet, "rota_config_last_reload_successful") == 0
    fleet.configure("workers = 3")
    assert fleet.reload()["result"] == "success"
    fleet.until_workers(3)
    until(lambda: _metric(fleet, "rota_config_last_reload_successful") == 1)


@pytest.mark.parametrize(
    "module",
    [
        "raise RuntimeError('no')",
        "import os; os._exit(1)",
        "import time; time.sleep(600)",
        "import rota, os\n@rota.on_worker_start\ndef start(): os._exit(3)",
    ],
    ids=["raises", "exits", "hangs", "dies in a hook"],
)
def test_code_that_does_not_work_is_refused_and_the_old_goes_on(fleet: Mastered, module: str) -> None:
    limits = "[limits]\nboot_seconds = 3\n[restarts]\nbackoff_seconds = 0.01\nbackoff_max_seconds = 0.02"
    fleet.configure(f"workers = 2\n{limits}")
    fleet.start()
    before = fleet.until_workers(2)
    (fleet.folder / "broken.py").write_text(module + "\n")
    fleet.configure(f'workers = 3\nimports = ["tasks", "broken"]\n{limits}')
    answer = fleet.reload()
    assert answer["result"] == "failure"
    assert "imports" in str(answer["faults"])
    assert fleet.until_workers(2) == before
    fleet.push("note", "still here")
    until(lambda: "still here" in fleet.ran())
    until(lambda: len(fleet.children("zygote")) == 1)


def test_new_code_is_rolled_in_while_at_least_all_but_one_serve(fleet: Mastered) -> None:
    fleet.configure("workers = 3")
    fleet.start()
    before = fleet.until_workers(3)
    (fleet.folder / "more.py").write_text(
        "import rota\nfrom tasks import say\n\n@rota.task\ndef extra(text): say('extra ' + text)\n"
    )
    fleet.configure('workers = 3\nimports = ["tasks", "more"]')
    fleet.signal(signal.SIGHUP)
    fewest = 3
    while len(fleet.log("worker.exited")) < 3:
        fewest = min(fewest, len(fleet.children("worker", "ready")))
    assert fewest >= 2
    assert not fleet.until_workers(3) & before
    until(lambda: len(fleet.children("zygote")) == 1)
    fleet.push("extra", "a")
    until(lambda: "extra a" in fleet.ran())


def test_of_many_reloads_the_last_one_counts(fleet: Mastered) -> None:
    fleet.start()
    fleet.until_workers(2)
    for number in range(10):
        fleet.configure(f"workers = {1 + number % 3}\ntiers = [['default', 'q{number}']]")
        fleet.signal(signal.SIGHUP)
    until(lambda: fleet.status()["loading"] is False and fleet.log("config.reloaded"))
    fleet.until_workers(1)
    fleet.push("note", "last", queue="q9")
    until(lambda: "last" in fleet.ran())


def test_warnings_of_a_reloaded_file_are_in_the_log(fleet: Mastered) -> None:
    fleet.start()
    fleet.configure("watch_config = true")
    assert fleet.reload()["result"] == "success"
    assert "watch_config has no effect" in fleet.log("config.warning")[0]["warning"]


def test_a_task_on_a_queue_that_no_tier_serves_is_refused(fleet: Mastered) -> None:
    fleet.start()
    (fleet.folder / "stray.py").write_text("import rota\n\n@rota.task(queue='nowhere')\ndef stray(): ...\n")
    fleet.configure('imports = ["tasks", "stray"]')
    answer = fleet.reload()
    assert answer["result"] == "failure"
    assert "'nowhere'" in str(answer["faults"])
    fleet.configure('imports = ["tasks", "stray"]\nunserved_queues = "warn"')
    assert fleet.reload()["result"] == "success"


def test_the_address_of_the_server_is_not_changed_by_a_reload(fleet: Mastered) -> None:
    fleet.start()
    (fleet.folder / "rota.toml").write_text(
        (fleet.folder / "rota.toml").read_text().replace(f'namespace = "{fleet.namespace}"', 'namespace = "other"')
    )
    answer = fleet.reload()
    assert answer["result"] == "failure"
    assert "start it again" in str(answer["faults"])


def test_ttin_and_ttou_change_the_pool_by_one(fleet: Mastered) -> None:
    fleet.start()
    fleet.until_workers(2)
    fleet.signal(signal.SIGTTIN)
    fleet.until_workers(3)
    fleet.signal(signal.SIGTTOU)
    fleet.until_workers(2)
    fleet.signal(signal.SIGTTOU)
    fleet.until_workers(1)


def test_signals_of_later_versions_do_no_harm(fleet: Mastered) -> None:
    fleet.start()
    before = fleet.until_workers(2)
    for number in (signal.SIGTSTP, signal.SIGCONT, signal.SIGUSR1, signal.SIGUSR2):
        fleet.signal(number)
    fleet.push("note", "a")
    until(lambda: "a" in fleet.ran())
    assert fleet.until_workers(2) == before


def test_a_changed_listening_place_moves_the_exporter_only(fleet: Mastered) -> None:
    fleet.start()
    workers = fleet.until_workers(2)
    fleet.configure("workers = 2\n[http]\nlisten = 'localhost:0'")
    assert fleet.reload()["result"] == "success"
    until(lambda: fleet.children("exporter", "ready"))
    until(lambda: _metric(fleet, "rota_workers_desired") == 2)
    assert fleet.until_workers(2) == workers
    fleet.configure("workers = 2\n[http]\nlisten = ''")
    fleet.signal(signal.SIGHUP)
    until(lambda: not fleet.children("exporter"))


def test_a_shadowing_file_and_a_client_opened_at_import_do_no_harm(fleet: Mastered) -> None:
    (fleet.folder / "selectors.py").write_text("raise RuntimeError('shadowed')\n")
    (fleet.folder / "tasks.py").write_text(
        f"import socket\nCLIENT = socket.create_connection(('127.0.0.1', {fleet.server.port}))\n{TASKS}"
    )
    fleet.start()
    fleet.push("note", "a")
    until(lambda: "a" in fleet.ran())
    assert str(fleet.server.port) in fleet.log("zygote.warning")[0]["warning"]
