"""What a service manager is told: decided from two pictures, sent without ever waiting."""

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


def told(*pictures: ServiceState, pid: int = 7) -> list[str]:
    """What a manager hears while a fleet goes through these."""
    return [
        message for before, after in itertools.pairwise(pictures) for message in changes_between(before, after, pid)
    ]


def test_it_is_ready_once_when_the_first_generation_works() -> None:
    assert told(STARTING, STARTING, WORKS, WORKS) == ["READY=1\nMAINPID=7"]


def test_process_1_of_a_namespace_does_not_tell_a_number_that_means_another_process_outside() -> None:
    assert told(STARTING, WORKS, pid=1) == ["READY=1"]


def test_a_reload_is_told_when_it_begins_and_when_it_is_over_whatever_became_of_it() -> None:
    rolling = ServiceState(works=True, reloads=1, changing=True)

    assert told(WORKS, rolling) == ["RELOADING=1"]
    assert told(rolling, rolling, ServiceState(works=True, reloads=1)) == ["READY=1"]


def test_a_reload_that_is_over_at_once_is_told_all_the_same() -> None:
    """One that was refused, or changed a number: whoever sent HUP waits for both messages."""
    assert told(WORKS, ServiceState(works=True, reloads=1)) == ["RELOADING=1", "READY=1"]


def test_a_reload_during_another_is_told_anew_and_both_are_over_together() -> None:
    first, second = (ServiceState(works=True, reloads=count, changing=True) for count in (1, 2))

    words = [message.partition("\n")[0] for message in told(WORKS, first, second, ServiceState(works=True, reloads=2))]

    assert words == ["RELOADING=1", "RELOADING=1", "READY=1"]


def test_a_reload_before_the_fleet_works_is_part_of_its_start() -> None:
    reloading = ServiceState(reloads=1, changing=True)

    assert told(STARTING, reloading, ServiceState(works=True, reloads=1)) == ["READY=1\nMAINPID=7"]


@pytest.mark.parametrize("before", [STARTING, WORKS, ServiceState(works=True, reloads=1, changing=True)])
def test_stopping_is_told_once_and_nothing_after_it(before: ServiceState) -> None:
    stopping = ServiceState(works=before.works, reloads=before.reloads, changing=before.changing, stopping=True)

    assert told(before, stopping, stopping, ServiceState(works=True, reloads=5, stopping=True)) == ["STOPPING=1"]


# The socket


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as bound:
        bound.bind(str(tmp_path / "notify"))
        yield bound


def test_the_environment_is_read_and_emptied() -> None:
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
def test_a_watchdog_of_another_process_or_of_nobody_is_not_fed(environment: dict[str, str]) -> None:
    assert NotifySocket.take(environment, os.getpid()).watchdog_seconds == 0.0


def test_a_manager_that_does_not_read_stops_nobody_and_misses_nothing(manager: socket.socket) -> None:
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


def test_what_no_descriptor_is_left_for_is_told_later(manager: socket.socket) -> None:
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


def test_an_abstract_socket_is_told_too_and_a_line_for_people_stays_one() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bound:
        bound.bind(f"\0rota-{os.getpid()}")
        sender = NotifySocket(f"@rota-{os.getpid()}")

        sender.send_status("two\nlines")

        assert bound.recv(100) == b"STATUS=two lines"


@pytest.mark.parametrize("address", ["", "vsock:1:2", "/nowhere/at/all", "/" + "x" * 200])
def test_where_nobody_is_nothing_happens(address: str) -> None:
    sender = NotifySocket(address)

    sender.send("READY=1")

    assert sender.has_room


def test_a_message_says_when_it_is_sent_and_one_that_can_wait_is_left_out_where_there_is_no_room(
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
