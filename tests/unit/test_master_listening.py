"""Where the exporter will listen: bound by the master, names looked up at the start only."""

import contextlib
import resource
import socket
from collections.abc import Iterator

import pytest

from rota_supervisor.exits import ExitCode, Failure
from rota_supervisor.master.core.effects import ListenAt
from rota_supervisor.master.effects import listen_socket
from rota_supervisor.master.effects.listen_socket import ListenSocket


@pytest.fixture
def listening() -> Iterator[ListenSocket]:
    made = ListenSocket()
    yield made
    made.close()


@pytest.fixture
def no_lookups(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> object:
        raise AssertionError("a name was looked up")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.mark.usefixtures("no_lookups")
@pytest.mark.parametrize("place", ["127.0.0.1:0", "localhost:0", "0.0.0.0:0", "[::1]:0"])
def test_a_place_in_numbers_is_bound_without_looking_anything_up(listening: ListenSocket, place: str) -> None:
    listening.prepare(place)
    listening.use(place)
    assert listening.address


@pytest.mark.usefixtures("no_lookups")
def test_a_name_is_refused_by_a_reload_with_advice(listening: ListenSocket) -> None:
    for attempt in (listening.prepare, listening.probe):
        with pytest.raises(Failure, match="start it again") as refused:
            attempt("somewhere.example:9477")
        assert refused.value.code is ExitCode.CONFIG


def test_a_name_of_the_start_can_be_gone_back_to(listening: ListenSocket, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: found)
    listening.start("our-host:0")
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: [])
    listening.use("127.0.0.1:0")
    listening.use("our-host:0")
    assert listening.address.startswith("127.0.0.1:")


def test_a_name_that_cannot_be_found_is_a_fault_of_the_configuration(
    listening: ListenSocket, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> object:
        raise socket.gaierror(socket.EAI_NONAME, "no such name")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    with pytest.raises(Failure, match="cannot be listened at"):
        listening.start("nowhere.example:1")


def test_a_process_without_a_descriptor_left_cannot_listen_and_stays_where_it_is(listening: ListenSocket) -> None:
    listening.start("127.0.0.1:0")
    place = listening.address
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket() as lowest:
        free = lowest.fileno()
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, limits[1]))
    try:
        with pytest.raises(Failure, match="cannot be listened at"):
            listening.prepare("localhost:0")
        listening.listen_at(ListenAt("localhost:0"))  # as when a reload is undone: nobody is left to tell
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert listening.address == place


def test_a_probe_leaves_nothing_bound_and_finds_what_is_taken(listening: ListenSocket) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(Failure) as refused:
            listening.probe(place)
        assert refused.value.code is ExitCode.TAKEN
    listening.probe(place)
    with socket.create_server(("127.0.0.1", int(place.rpartition(":")[2]))):
        pass


def free_run() -> int:
    """Return a port, the next two of which are free too."""
    while True:
        with contextlib.suppress(OSError, OverflowError), contextlib.ExitStack() as held:
            first = held.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]
            for other in (first + 1, first + 2):
                held.enter_context(socket.create_server(("127.0.0.1", other)))
            return int(first)


def test_the_first_free_port_after_taken_ones_is_used_if_that_is_allowed(listening: ListenSocket) -> None:
    first = free_run()
    wanted = f"127.0.0.1:{first}"
    with socket.create_server(("127.0.0.1", first)), socket.create_server(("127.0.0.1", first + 1)):
        listening.start(wanted, or_next=True)
        assert listening.address == f"127.0.0.1:{first + 2}"
        assert listening.warning.startswith(f"{wanted} is taken: this fleet listens at {listening.address}")
        listening.probe(wanted)
        listening.prepare(wanted)
        listening.use(wanted)
        assert listening.address == f"127.0.0.1:{first + 2}"


def test_a_taken_port_is_refused_if_the_next_is_not_allowed(listening: ListenSocket) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(Failure) as refused:
        listening.start(f"127.0.0.1:{taken.getsockname()[1]}")
    assert refused.value.code is ExitCode.TAKEN


def test_a_start_that_finds_no_port_free_names_the_one_it_wanted(
    listening: ListenSocket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listen_socket, "NEXT_PORTS", 1)
    first = free_run()
    with (
        socket.create_server(("127.0.0.1", first)),
        socket.create_server(("127.0.0.1", first + 1)),
        pytest.raises(Failure, match=f"127.0.0.1:{first}'") as refused,
    ):
        listening.start(f"127.0.0.1:{first}", or_next=True)
    assert refused.value.code is ExitCode.TAKEN
