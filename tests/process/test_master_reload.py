"""Reloads by SIGHUP. A reload applies the changes in the configuration file, and affects nothing else. A file that is
not valid changes nothing.
"""

import contextlib
import signal
from functools import partial
from pathlib import Path
from typing import Any

from support.fleet_readings import Scrape
from support.masters import ON_ONE_SERVER, TASKS, Mastered
from support.waiting import until

pytestmark = ON_ONE_SERVER


def _metric(fleet: Mastered, name: str) -> float:
    code, body = fleet.get("/metrics")
    assert code == 200, body
    return Scrape(body).total(name)


UNUSABLE = {
    "workers = -1": "workers",
    "wrokers = 3": "wrokers",
    "workers = 2\ntiers = [['default'], ['default']]": "tiers",
    "workers = [": "rota.toml",
    "workers = 2\n[http]\nlisten = '192.0.2.1:1'": "http.listen",
}


def test_reload_of_an_unusable_file_changes_nothing(fleet: Mastered) -> None:
    fleet.start()
    before = fleet.pids() if fleet.until_workers(2) else set()
    for broken, path in UNUSABLE.items():
        told = len(fleet.log("config.rejected"))
        fleet.configure(broken)
        fleet.signal(signal.SIGHUP)
        rejected = until(partial(_rejected, fleet, told))
        assert path in rejected[0]["path"]
        assert fleet.pids() == before
        assert _metric(fleet, "rota_config_last_reload_successful") == 0
        fleet.configure("workers = 2")
        assert fleet.reload()["result"] == "success"
        until(partial(_last_reload_worked, fleet))
    fleet.configure("workers = 3")
    assert fleet.reload()["result"] == "success"
    fleet.until_workers(3)


def _rejected(fleet: Mastered, before: int) -> list[dict[str, Any]]:
    return fleet.log("config.rejected")[before:]


def _last_reload_worked(fleet: Mastered) -> bool:
    return _metric(fleet, "rota_config_last_reload_successful") == 1


MISSING = "rota.toml: there is no such file; `rota init` writes one"


def test_reload_without_the_file_changes_nothing(fleet: Mastered) -> None:
    file = fleet.folder / "rota.toml"
    fleet.configure("workers = 1")
    fleet.start()
    told = fleet.status()
    file.rename(file.with_name("saved"))
    assert fleet.reload() == {
        "result": "failure",
        "faults": ["rota.toml: there is no such file; `rota init` writes one"],
    }
    file.with_name("saved").rename(file)
    assert fleet.reload()["result"] == "success"
    assert fleet.status()["generation"] == told["generation"]


# For each kind of broken code, the module that is imported and the message of the refused reload.
BROKEN = {
    "raises": ("raise RuntimeError('no')", "imports: raises: RuntimeError: no"),
    "leaves": ("raise SystemExit(5)", "imports: leaves: SystemExit: 5"),
    "exits": ("import os; os._exit(7)", "imports: exits: importing it ended the process: exited with code 7"),
    "segfaults": (
        "import ctypes; ctypes.string_at(0)",
        "imports: segfaults: importing it ended the process: killed by SIGSEGV",
    ),
    "hangs": ("import time\n\ndef wait():\n    time.sleep(600)\n\nwait()", "imports: hangs: importing it took longer"),
    "hook_raises": (
        "import rota\n@rota.on_worker_start\ndef start(): 1 / 0",
        "2 starts in a row failed, most recently: exited with code 1 before it was ready: hook_raises.start raised",
    ),
    "hook_exits": ("import rota, os\n@rota.on_worker_start\ndef start(): os._exit(3)", "exited with code 3"),
    "hook_hangs": (
        "import rota, time\n@rota.on_worker_start\ndef start(): time.sleep(600)",
        "took longer than limits.boot",
    ),
}


def test_reload_of_broken_code_keeps_the_old_workers(fleet: Mastered) -> None:
    limits = "[limits]\nboot_seconds = 2\nbeat_seconds = 2"
    fleet.configure(f"workers = 2\n{limits}")
    fleet.start()
    before = fleet.until_workers(2)
    for module, (text, said) in BROKEN.items():
        (fleet.folder / f"{module}.py").write_text(f"{text}\n")
        fleet.configure(f'workers = 3\nimports = ["tasks", "{module}"]\n{limits}')
        answer = fleet.reload()
        assert answer["result"] == "failure"
        assert said in str(answer["faults"])
        assert said in fleet.log("config.rejected")[-1]["path"] + ": " + fleet.log("config.rejected")[-1]["error"]
        assert before <= fleet.pids("worker", "ready")
        fleet.push("note", module)
        until(partial(_has_run, fleet, module))
    until(lambda: len(fleet.children("zygote")) == 1)
    assert fleet.until_workers(2) == before


def _has_run(fleet: Mastered, text: str) -> bool:
    return text in fleet.ran()


def test_new_code_replaces_one_worker_at_a_time(fleet: Mastered) -> None:
    fleet.configure("workers = 3")
    fleet.start()
    before = fleet.until_workers(3)
    (fleet.folder / "more.py").write_text(
        "import rota\nfrom tasks import record\n\n@rota.task\ndef extra(text): record('extra ' + text)\n"
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


POOLS = """
tiers = [["mail"], ["default"]]
[pools.mail]
queues = ["mail"]
[pools.rest]
queues = ["default"]
workers = 2
"""


def test_reload_replaces_only_affected_workers(fleet: Mastered) -> None:
    fleet.configure(POOLS)
    fleet.start()
    fleet.until_workers(3)
    before = {pool: _pids_of_pool(fleet, pool) for pool in ("mail", "rest")}
    others = fleet.pids() - before["mail"] - before["rest"]
    fleet.configure(f"{POOLS}[limits]\ndrain_seconds = 9\nboot_seconds = 50\n[lease]\nrenew_seconds = 4")
    assert fleet.reload()["changes"] == ["rest"]
    assert fleet.until_workers(3) == before["mail"] | before["rest"]
    fleet.configure(f"{POOLS}[queues.mail]\nrate = '9/s'")
    assert fleet.reload()["changes"] == ["workers"]
    until(lambda: len(fleet.children("worker")) == 3)
    assert _pids_of_pool(fleet, "rest") == before["rest"]
    assert _pids_of_pool(fleet, "mail").isdisjoint(before["mail"])
    # These are the same processes as before, so the code was not loaded again.
    assert fleet.pids() - fleet.pids("worker") == others
    fleet.push("note", "by mail", queue="mail")
    until(lambda: "by mail" in fleet.ran())


def _pids_of_pool(fleet: Mastered, pool: str) -> set[int]:
    return {row["pid"] for row in fleet.children("worker", "ready") if row["pool"] == pool}


def test_reload_preview_reports_the_plan_and_changes_nothing(fleet: Mastered) -> None:
    fleet.start()
    before = fleet.until_workers(2)
    fleet.configure("workers = 3\ntiers = [['default', 'more']]\n[http]\nlisten = 'localhost:0'")
    preview = fleet.request("reload", dry_run=True)["reload"]
    assert preview["result"] == "success"
    assert "pool default: 2 -> 3 workers, 1 started" in preview["plan"]
    fleet.configure("workers = 3\ntiers = []\ndurability = 'wait'")
    faults = fleet.request("reload", dry_run=True)["reload"]["faults"]
    assert [fault.partition(":")[0] for fault in faults] == ["tiers"]
    assert fleet.until_workers(2) == before
    assert not fleet.log("config.rejected")


def test_watched_file_is_reloaded_automatically(fleet: Mastered) -> None:
    fleet.start()
    fleet.until_workers(2)
    fleet.configure("workers = 2\nwatch_config = true")
    fleet.reload()
    fleet.configure("workers = 3\nwatch_config = true")
    fleet.until_workers(3)
    fleet.configure("workers = -3\nwatch_config = true")
    until(lambda: fleet.log("config.rejected"))
    fleet.configure("workers = 1")
    fleet.until_workers(1)
    assert len(fleet.log("config.rejected")) == 1
    assert len(fleet.log("config.reloaded")) == 3


def test_the_reload_option_of_development_loads_only_code_that_works(fleet: Mastered) -> None:
    fleet.start("--reload")
    first = fleet.until_workers(2)
    until(lambda: _watched_folders(fleet.pid))
    for number in range(3):  # several files are saved in quick succession, which causes only one restart
        (fleet.folder / f"more{number}.py").write_text("")
    (fleet.folder / "tasks.py").write_text(TASKS.replace("record(text)", "record('new ' + text)"))
    until(lambda: fleet.log("config.reloaded"))
    new = fleet.until_workers(2)
    assert new.isdisjoint(first)
    fleet.push("note", "a")
    until(lambda: "new a" in fleet.ran())
    (fleet.folder / "notes.txt").write_text("no code")
    (fleet.folder / "tasks.py").write_text("import nowhere_at_all\n")
    rejected = until(lambda: fleet.log("config.rejected"))
    assert "nowhere_at_all" in rejected[0]["error"]
    assert fleet.until_workers(2) == new
    assert len(fleet.log("config.reloaded")) == 1


def _watched_folders(pid: int) -> bool:
    """Whether this process watches a folder for changes. The kernel reports this."""
    return any("inotify wd:" in _text_of(info) for info in Path(f"/proc/{pid}/fdinfo").iterdir())


def _text_of(info: Path) -> str:
    """Return the kernel's description of a descriptor, or "" if the descriptor has been closed since it was listed."""
    with contextlib.suppress(FileNotFoundError):
        return info.read_text()
    return ""


def test_reloads_work_during_the_first_load_and_not_while_draining(fleet: Mastered) -> None:
    gate = "import time\nfrom pathlib import Path\nwhile not Path('gate').exists(): time.sleep(0.01)\n"
    (fleet.folder / "slow.py").write_text(gate)
    fleet.configure('workers = 1\nimports = ["slow", "tasks"]')
    fleet.launch()
    until(lambda: fleet.log("fleet.starting") and fleet.children("zygote"))
    fleet.configure("workers = -1")
    assert fleet.reload()["result"] == "failure"
    (fleet.folder / "broken.py").write_text("import os; os._exit(1)\n")
    fleet.configure('workers = 1\nimports = ["broken"]')
    # This configuration fails too. Nevertheless, the master does not exit, and returns to the first configuration.
    assert fleet.reload()["result"] == "failure"
    fleet.configure('workers = 2\nimports = ["slow", "tasks"]\n[limits]\nmax_tasks = 1000')
    fleet.signal(signal.SIGHUP)
    (fleet.folder / "gate").touch()
    until(lambda: fleet.log("fleet.ready"))
    fleet.until_workers(2)
    fleet.push("hold", "a")
    until(lambda: fleet.starts("a"))
    fleet.signal(signal.SIGTERM)
    until(lambda: fleet.log("fleet.draining"))
    assert "result" not in fleet.request("reload").get("reload", {})
    fleet.release()
    assert fleet.exit_code() == 0


def test_reload_keeps_quiet_state_and_scaled_size(fleet: Mastered) -> None:
    fleet.start()
    fleet.request("scale", workers=3)
    before = fleet.until_workers(3)
    fleet.request("quiet")
    fleet.push("note", "a")
    fleet.configure("workers = 2\n[limits]\nmax_tasks = 1000")
    assert fleet.reload()["result"] == "success"
    assert fleet.until_workers(3).isdisjoint(before)
    assert fleet.status()["state"] == "quiet"
    assert not fleet.ran()
    fleet.request("resume")
    until(lambda: "a" in fleet.ran())


def test_last_of_many_reloads_takes_effect(fleet: Mastered) -> None:
    fleet.start()
    fleet.until_workers(2)
    for number in range(10):
        fleet.configure(f"workers = {1 + number % 3}\ntiers = [['default', 'q{number}']]")
        fleet.signal(signal.SIGHUP)
    until(lambda: fleet.status()["loading"] is False and fleet.log("config.reloaded"))
    fleet.until_workers(1)
    fleet.push("note", "last", queue="q9")
    until(lambda: "last" in fleet.ran())


def test_warnings_of_a_reloaded_file_are_logged(fleet: Mastered) -> None:
    fleet.start()
    pools = "[pools.all]\nworkers = 2\nqueues = ['default']\n[pools.none]\nworkers = 0\nqueues = ['q']"
    fleet.configure(f"tiers = [['default', 'q']]\n{pools}")
    assert fleet.reload()["result"] == "success"
    assert 'no worker takes queue "q"' in fleet.log("config.warning")[0]["warning"]


def test_schedule_arguments_are_checked_against_loaded_code(fleet: Mastered) -> None:
    late = "every = 86_400\nstart = 2100-01-01T00:00:00Z"
    fleet.configure(f'workers = 2\n[schedules.good]\ntask = "note"\nargs = ["x"]\n{late}')
    fleet.start()
    fleet.configure(f'workers = 2\n[schedules.lost]\ntask = "note"\nargs = [1, 2]\n{late}')
    assert fleet.request("restart")["restart"]["result"] == "success"
    [warned] = fleet.log("zygote.warning")
    assert warned["warning"].startswith("schedules.lost.args: the arguments do not fit note(text)")


def test_reload_refuses_a_task_on_an_unserved_queue(fleet: Mastered) -> None:
    fleet.start()
    (fleet.folder / "stray.py").write_text("import rota\n\n@rota.task(queue='nowhere')\ndef stray(): ...\n")
    fleet.configure('imports = ["tasks", "stray"]')
    answer = fleet.reload()
    assert answer["result"] == "failure"
    assert "'nowhere'" in str(answer["faults"])
    fleet.configure('imports = ["tasks", "stray"]\nunserved_queues = "warn"')
    assert fleet.reload()["result"] == "success"


def test_reload_cannot_change_the_namespace(fleet: Mastered) -> None:
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


def test_changed_listen_address_restarts_only_the_exporter(fleet: Mastered) -> None:
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
    assert fleet.until_workers(2) == workers


def test_a_file_that_shadows_a_module_and_an_early_socket_do_no_harm(fleet: Mastered) -> None:
    (fleet.folder / "selectors.py").write_text("raise RuntimeError('shadowed')\n")
    (fleet.folder / "tasks.py").write_text(
        f"import socket\nCLIENT = socket.create_connection(('127.0.0.1', {fleet.server.port}))\n{TASKS}"
    )
    fleet.start()
    fleet.push("note", "a")
    until(lambda: "a" in fleet.ran())
    assert str(fleet.server.port) in fleet.log("zygote.warning")[0]["warning"]
