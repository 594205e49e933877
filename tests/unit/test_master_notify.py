"""The messages to a service manager. The master derives them from its previous and its current state, and sends them
without blocking.
"""

import itertools
import os
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from rota_supervisor.master.core.effects import NotifyManager
from rota_supervisor.master.core.manager_messages import changes_between
from rota_supervisor.master.core.state import ServiceState
from rota_supervisor.master.effects.notify_socket import NotifySocket

STARTING = ServiceState()
WORKS = ServiceState(works=True)


def messages_during(*pictures: ServiceState, pid: int = 7) -> list[str]:
    """Return the messages that a service manager receives while a fleet goes through these states."""
    return [
        message for before, after in itertools.pairwise(pictures) for message in changes_between(before, after, pid)
    ]


def test_ready_is_sent_to_the_service_manager_once_the_first_generation_works() -> None:
    assert messages_during(STARTING, STARTING, WORKS, WORKS) == ["READY=1\nMAINPID=7"]


def test_as_process_1_of_a_pid_namespace_the_master_does_not_send_its_pid() -> None:
    assert messages_during(STARTING, WORKS, pid=1) == ["READY=1"]


def test_for_a_reload_the_service_manager_gets_reloading_and_then_ready() -> None:
    rolling = ServiceState(works=True, reloads=1, changing=True)

    assert messages_during(WORKS, rolling) == ["RELOADING=1"]
    assert messages_during(rolling, rolling, ServiceState(works=True, reloads=1)) == ["READY=1"]


def test_a_reload_that_ends_at_once_still_sends_reloading_and_ready() -> None:
    """A reload ends at once if it was refused or changed only the number of workers. The manager that sent HUP still
    waits for both messages.
    """
    assert messages_during(WORKS, ServiceState(works=True, reloads=1)) == ["RELOADING=1", "READY=1"]


def test_overlapping_reloads_send_one_ready_message_for_both() -> None:
    first, second = (ServiceState(works=True, reloads=count, changing=True) for count in (1, 2))

    words = [
        message.partition("\n")[0]
        for message in messages_during(WORKS, first, second, ServiceState(works=True, reloads=2))
    ]

    assert words == ["RELOADING=1", "RELOADING=1", "READY=1"]


def test_a_reload_during_startup_sends_only_the_ready_message() -> None:
    reloading = ServiceState(reloads=1, changing=True)

    assert messages_during(STARTING, reloading, ServiceState(works=True, reloads=1)) == ["READY=1\nMAINPID=7"]


@pytest.mark.parametrize("before", [STARTING, WORKS, ServiceState(works=True, reloads=1, changing=True)])
def test_stopping_is_sent_once_to_the_service_manager_and_nothing_after_it(before: ServiceState) -> None:
    stopping = ServiceState(works=before.works, reloads=before.reloads, changing=before.changing, stopping=True)

    assert messages_during(before, stopping, stopping, ServiceState(works=True, reloads=5, stopping=True)) == [
        "STOPPING=1"
    ]


# The socket


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as bound:
        bound.bind(str(tmp_path / "notify"))
        yield bound


def test_environment_variables_of_the_service_manager_are_read_and_removed() -> None:
    environment = {"NOTIFY_SOCKET": "/run/n", "WATCHDOG_USEC": "3000000", "WATCHDOG_PID": str(os.getpid()), "HOME": "/"}

    taken = NotifySocket.take(environment, os.getpid())

    assert (taken.is_there, taken.watchdog_seconds) == (True, 3.0)
    assert environment == {"HOME": "/"}


@pytest.mark.parametrize(
    "environment",
    [
        {"NOTIFY_SOCKET": "/run/n", "WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"},
        {"NOTIFY_SOCKET": "/run/n", "WATCHDOG_USEC": "often"},
        {"WATCHDOG_USEC": "3000000"},
    ],
)
def test_watchdog_settings_that_are_invalid_or_for_another_pid_are_ignored(environment: dict[str, str]) -> None:
    assert NotifySocket.take(environment, os.getpid()).watchdog_seconds == 0.0


def test_a_service_manager_that_reads_late_misses_no_message(manager: socket.socket) -> None:
    sender = NotifySocket(manager.getsockname())
    for number in itertools.count():
        sender.send(f"N={number}")
        if not sender.has_room:
            break

    heard = [manager.recv(100)]
    sender.flush()
    while sender.has_room and len(heard) <= number:
        heard.append(manager.recv(100))

    assert heard == [f"N={each}".encode() for each in range(number + 1)]


def test_without_a_free_file_descriptor_a_notification_is_sent_later(manager: socket.socket) -> None:
    sender = NotifySocket(manager.getsockname())
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        sender.send("READY=1")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert not sender.has_room
    sender.flush()
    assert (sender.has_room, manager.recv(100)) == (True, b"READY=1")


def test_a_status_sent_to_an_abstract_socket_is_one_line() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bound:
        bound.bind(f"\0rota-{os.getpid()}")
        sender = NotifySocket(f"@rota-{os.getpid()}")

        sender.send_status("two\nlines")

        assert bound.recv(100) == b"STATUS=two lines"


@pytest.mark.parametrize("address", ["", "vsock:1:2", "/nowhere/at/all", "/" + "x" * 200])
def test_without_a_service_manager_notifications_are_dropped(address: str) -> None:
    sender = NotifySocket(address)

    sender.send("READY=1")

    assert sender.has_room


def test_unimportant_notifications_are_dropped_if_the_socket_is_full(
    manager: socket.socket,
) -> None:
    sender = NotifySocket(manager.getsockname())
    sender.notify(NotifyManager("RELOADING=1"))
    assert int(manager.recv(100).removeprefix(b"RELOADING=1\nMONOTONIC_USEC=")) > 0
    while sender.has_room:
        sender.send("N")
    sender.notify(NotifyManager("LATER", can_wait=True))
    sender.notify(NotifyManager("READY=1"))
    assert list(sender._waiting)[-1] == b"READY=1"
    assert b"LATER" not in sender._waiting
