"""A fleet under a service manager. A real `rota run` reports its state to the manager's notify socket."""

import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.masters import ON_ONE_SERVER, Mastered
from support.processes import descendants, is_alive
from support.waiting import DEADLINE_SECONDS, until

pytestmark = ON_ONE_SERVER

TELL = """
@rota.task
def tell(text):
    record(" ".join(os.environ))
"""
KNOWN = {"READY", "RELOADING", "STOPPING", "STATUS", "WATCHDOG", "MAINPID", "MONOTONIC_USEC", "EXTEND_TIMEOUT_USEC"}


class Manager:
    """The service manager's end of the notify socket. It checks that the protocol permits each message."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        self.socket.settimeout(DEADLINE_SECONDS)

    def receive(self) -> dict[str, str]:
        """Receive the next datagram and return its fields. Each line of the datagram is NAME=VALUE."""
        lines = self.socket.recv(4096).decode().split("\n")
        fields = dict(line.split("=", 1) for line in lines)
        assert len(fields) == len(lines)
        assert fields.keys() <= KNOWN
        return fields

    def wait_for(self, name: str, value: str = "") -> dict[str, str]:
        """Wait for a datagram in which this field contains this text. Returns the fields of the datagram."""
        while name not in (fields := self.receive()) or value not in fields[name]:
            continue
        return fields

    def wait_for_reload(self) -> int:
        """Wait until a reload has begun and ended. Returns the time at which it began, in microseconds, as reported by
        the fleet.
        """
        begun = self.wait_for("RELOADING")
        assert begun["RELOADING"] == "1"
        assert self.wait_for("READY") == {"READY": "1"}
        return int(begun["MONOTONIC_USEC"])


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    made = Manager(tmp_path / "notify")
    yield made
    made.socket.close()


@pytest.fixture
def fleet(fleet: Mastered, manager: Manager) -> Mastered:
    fleet.environment = {"NOTIFY_SOCKET": manager.socket.getsockname(), "WATCHDOG_USEC": "4000000"}
    fleet.add_tasks(TELL)
    return fleet


def test_only_the_master_notifies_the_service_manager(fleet: Mastered, manager: Manager) -> None:
    fleet.launch()
    assert manager.wait_for("EXTEND_TIMEOUT_USEC") == {"EXTEND_TIMEOUT_USEC": "30000000"}
    assert manager.wait_for("READY") == {"READY": "1", "MAINPID": str(fleet.pid)}
    manager.wait_for("STATUS", "2 of 2 workers, 0 busy, generation 1")
    assert fleet.request("quiet")["ok"]
    manager.wait_for("STATUS", "2 of 2 workers, 0 busy, generation 1, quiet")
    assert fleet.request("resume")["ok"]

    fleet.configure("workers = 3")  # this change is applied at once
    fleet.signal(signal.SIGHUP)
    first = manager.wait_for_reload()
    fleet.configure("workers = 'three'")  # this change is refused
    fleet.signal(signal.SIGHUP)
    second = manager.wait_for_reload()
    # For this change, the workers are replaced one by one.
    fleet.configure("workers = 3\n[limits]\ntime_limit_seconds = 99")
    assert fleet.reload()["result"] == "success"
    third = manager.wait_for_reload()
    assert fleet.request("restart")["restart"]["result"] == "success"
    assert first < second < third < manager.wait_for_reload()
    manager.wait_for("STATUS", "3 of 3 workers")

    assert manager.wait_for("WATCHDOG") == {"WATCHDOG": "1"}
    fleet.push("tell", "a")
    (names,) = until(fleet.ran)
    assert not {"NOTIFY_SOCKET", "WATCHDOG_USEC", "SPT_NOENV"} & set(names.split())
    assert "ROTA_OWNER" in names.split()

    fleet.push("hold", "b")
    manager.wait_for("STATUS", "1 busy")
    fleet.signal(signal.SIGTERM)
    manager.wait_for("STOPPING")
    manager.wait_for("EXTEND_TIMEOUT_USEC")
    manager.wait_for("STATUS", "stopping: 1 workers left, 1 busy")
    fleet.release()
    assert fleet.exit_code() == 0


def test_sigabrt_logs_the_stack_and_leaves_no_children(fleet: Mastered) -> None:
    fleet.start()
    everybody = descendants(fleet.pid)

    fleet.signal(signal.SIGABRT)

    assert fleet.exit_code() == -signal.SIGABRT
    assert "in run_master" in fleet.log_text()
    until(lambda: not any(map(is_alive, everybody)), "its children are gone")


def test_failed_start_is_reported_to_the_manager(fleet: Mastered, manager: Manager) -> None:
    (fleet.folder / "tasks.py").write_text("import nowhere")

    assert fleet.launch().exit_code() == 78

    manager.wait_for("STATUS", "No module named 'nowhere'")


def test_unusable_pid_file_is_reported_to_the_manager(fleet: Mastered, manager: Manager) -> None:
    fleet.environment["ROTA_CONTROL__PID_FILE"] = "tasks.py"

    assert fleet.launch().exit_code() == 73

    assert "is not a pid file" in manager.wait_for("STATUS")["STATUS"]
