"""The exporter's listening socket. The master binds the socket, and resolves host names only at the start."""

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
        raise AssertionError("a host name was resolved")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.mark.usefixtures("no_lookups")
@pytest.mark.parametrize("place", ["127.0.0.1:0", "localhost:0", "0.0.0.0:0", "[::1]:0"])
def test_a_numeric_listen_address_is_bound_without_a_dns_lookup(listening: ListenSocket, place: str) -> None:
    listening.prepare(place)
    listening.use(place)
    assert listening.address


@pytest.mark.usefixtures("no_lookups")
def test_a_reload_refuses_to_listen_at_a_new_host_name_with_advice(listening: ListenSocket) -> None:
    for attempt in (listening.prepare, listening.probe):
        with pytest.raises(Failure, match="start it again") as refused:
            attempt("somewhere.example:9477")
        assert refused.value.code is ExitCode.CONFIG


def test_a_reload_can_restore_the_host_name_used_at_startup(
    listening: ListenSocket, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: found)
    listening.start("our-host:0")
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: [])
    listening.use("127.0.0.1:0")
    listening.use("our-host:0")
    assert listening.address.startswith("127.0.0.1:")


def test_listening_at_an_unknown_host_name_is_refused(listening: ListenSocket, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> object:
        raise socket.gaierror(socket.EAI_NONAME, "no such name")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    with pytest.raises(Failure, match="cannot be listened at"):
        listening.start("nowhere.example:1")


def test_without_free_file_descriptors_the_old_address_stays_in_use(listening: ListenSocket) -> None:
    listening.start("127.0.0.1:0")
    place = listening.address
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket() as lowest:
        free = lowest.fileno()
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, limits[1]))
    try:
        with pytest.raises(Failure, match="cannot be listened at"):
            listening.prepare("localhost:0")
        # A reload that is undone returns to the old address. This must not raise an error, because no caller would
        # receive it.
        listening.listen_at(ListenAt("localhost:0"))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert listening.address == place


def test_a_used_listen_address_is_detected_without_keeping_it_bound(listening: ListenSocket) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(Failure) as refused:
            listening.probe(place)
        assert refused.value.code is ExitCode.TAKEN
    listening.probe(place)
    with socket.create_server(("127.0.0.1", int(place.rpartition(":")[2]))):
        pass


def free_run() -> int:
    """Return a free port that is followed by two more free ports."""
    while True:
        with contextlib.suppress(OSError, OverflowError), contextlib.ExitStack() as held:
            first = held.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]
            for other in (first + 1, first + 2):
                held.enter_context(socket.create_server(("127.0.0.1", other)))
            return int(first)


def test_the_exporter_uses_the_next_free_port_if_allowed(listening: ListenSocket) -> None:
    first = free_run()
    wanted = f"127.0.0.1:{first}"
    with socket.create_server(("127.0.0.1", first)), socket.create_server(("127.0.0.1", first + 1)):
        listening.start(wanted, or_next=True)
        assert listening.address == f"127.0.0.1:{first + 2}"
        assert listening.warning.startswith(f"{wanted} is already in use, so this fleet listens at {listening.address}")
        listening.probe(wanted)
        listening.prepare(wanted)
        listening.use(wanted)
        assert listening.address == f"127.0.0.1:{first + 2}"


def test_a_port_in_use_is_refused_if_no_other_is_allowed(listening: ListenSocket) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(Failure) as refused:
        listening.start(f"127.0.0.1:{taken.getsockname()[1]}")
    assert refused.value.code is ExitCode.TAKEN


def test_if_no_port_is_free_the_error_names_the_configured_one(
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
