"""The messages of a fleet that starts while sentinels or the requested durability are unavailable. Some of these
problems do not prevent the start.
"""

import asyncio
import socket
import socketserver
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.sentinel

import rota
from rota.server.address import GUIDE_SECONDS, parse_address
from rota.server.aio_connection import AioConnection, Opener
from rota.server.connection import ConnectionOptions, connect
from rota.server.server_errors import ConnectionLost
from support.fleet_process import rota as run_rota
from support.fleets import RunningFleet
from support.sentinels import SERVICE, Sentinels
from support.servers import Server, free_port
from support.waiting import until

PASSWORD = "guarded"


@pytest.fixture(name="service", scope="module")
def _service(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sentinels]:
    """Yield a service with sentinels. The tests share the service, because none of them changes it."""
    with Sentinels(server.binary, tmp_path_factory.mktemp("service"), PASSWORD) as service:
        yield service


def checked(folder: Path, url: str, **more: str) -> tuple[int, str]:
    done = run_rota(folder, "check", "--no-imports", ROTA_REDIS_URL=url, **more)
    return done.returncode, done.stderr


def test_unknown_service_error_lists_known_services(service: Sentinels, tmp_path: Path) -> None:
    code, said = checked(tmp_path, service.url.replace(SERVICE, "nowhere"))
    assert code == 69
    assert "no sentinel named a usable primary of 'nowhere'" in said
    assert f"knows '{SERVICE}'" in said
    assert PASSWORD not in said


def test_wrong_sentinel_password_is_reported(service: Sentinels, tmp_path: Path) -> None:
    code, said = checked(tmp_path, service.url.partition("?")[0])
    assert code == 69
    assert "gave no address (NOAUTH" in said


def test_server_in_place_of_a_sentinel_is_reported(service: Sentinels, tmp_path: Path) -> None:
    code, said = checked(tmp_path, f"redis+sentinel://127.0.0.1:{service.primary().port}/{SERVICE}")
    assert code == 69
    assert "gave no address (ERR unknown command" in said


def test_unreachable_sentinels_are_reported_with_reasons(tmp_path: Path) -> None:
    one = free_port()
    two = free_port()
    code, said = checked(tmp_path, f"redis+sentinel://127.0.0.1:{one},127.0.0.1:{two}/{SERVICE}")
    assert code == 69
    assert f"127.0.0.1:{one}, 127.0.0.1:{two} gave no address (no connection: Connection refused)" in said


def test_application_client_follows_its_own_sentinels(service: Sentinels, namespace: str) -> None:
    places = [("127.0.0.1", sentinel.port) for sentinel in service.sentinels]
    make: Any = redis.sentinel.Sentinel  # redis-py has no type for this attribute
    own = make(places, sentinel_kwargs={"password": PASSWORD})
    with pytest.raises(TypeError, match=r"pass the result of sentinel\.master_for"):
        rota.Client(redis=own, namespace=namespace)
    with pytest.raises(ValueError, match="a replica accepts no tasks"):
        rota.Client(redis=own.slave_for(SERVICE), namespace=namespace)
    with rota.Client(redis=own.master_for(SERVICE), namespace=namespace, durability="wait") as client:
        client.enqueue("work", queue="q", id="a")
        assert client.status("a").state == "ready"
    with rota.Client(service.url, namespace) as direct:
        assert direct.status("a").state == "ready"


class _Misled(socketserver.StreamRequestHandler):
    """A sentinel with outdated information. It names the same server in each of its replies."""

    def handle(self) -> None:
        server = self.server
        assert isinstance(server, _MisledServer)
        while header := self.rfile.readline():
            for _ in range(2 * int(header[1:])):
                self.rfile.readline()
            port = str(server.named_port)
            self.wfile.write(f"*2\r\n$9\r\n127.0.0.1\r\n${len(port)}\r\n{port}\r\n".encode())


class _MisledServer(socketserver.ThreadingTCPServer):
    daemon_threads = True

    def __init__(self, named_port: int) -> None:
        super().__init__(("127.0.0.1", 0), _Misled)
        self.named_port = named_port


@pytest.fixture(name="misled")
def _misled(service: Sentinels) -> Iterator[str]:
    """Yield a URL whose first sentinel names a replica, and whose other sentinels name the primary."""
    with _MisledServer(service.replicas()[0].port) as misled:
        thread = threading.Thread(target=misled.serve_forever, args=(0.01,))
        thread.start()
        yield service.url.replace("://", f"://127.0.0.1:{misled.server_address[1]},")
        misled.shutdown()
        thread.join()


def test_replica_named_by_a_stale_sentinel_is_skipped(service: Sentinels, namespace: str, misled: str) -> None:
    primary = service.primary().port
    connection = connect(parse_address(misled), ConnectionOptions())
    connection.close()
    assert connection.address.port == primary
    assert asyncio.run(_role(AioConnection(Opener(parse_address(misled), "rota:test")))) == b"master"
    with rota.Client(misled, namespace) as client:
        client.enqueue("note", queue="default", id="b")
    alone = misled.partition(",")[0] + f"/{SERVICE}"
    with pytest.raises(ConnectionLost, match=r"named 127\.0\.0\.1:\d+ \(a replica\)"):
        connect(parse_address(alone), ConnectionOptions())


def test_silent_first_sentinel_does_not_prevent_a_connection(service: Sentinels) -> None:
    # The kernel accepts connections here, but no program reads from these connections.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = service.url.replace("://", f"://127.0.0.1:{silent.getsockname()[1]},")
        impatient = AioConnection(Opener(parse_address(url), "rota:test"), lambda: GUIDE_SECONDS / 2)
        assert asyncio.run(_role(impatient)) == b"master"


def test_every_kind_of_connection_finds_the_primary_behind_sentinels(
    service: Sentinels, namespace: str, tmp_path: Path
) -> None:
    address = parse_address(service.url)
    connection = connect(address, ConnectionOptions())
    assert connection.address.port == service.primary().port
    assert connection.execute("ROLE")[0] == b"master"
    connection.close()
    assert asyncio.run(_role(AioConnection(Opener(address, "rota:test")))) == b"master"
    with rota.Client(service.url, namespace) as client:
        assert client.enqueue("note", queue="default", id="a").id == "a"
        assert client.status("a").state == "ready"
    done = run_rota(tmp_path, "task", "show", "a", ROTA_REDIS_URL=service.url, ROTA_NAMESPACE=namespace)
    assert done.returncode == 0, done.stderr


async def _role(connection: AioConnection) -> bytes:
    try:
        answer = await connection.execute("ROLE")
    finally:
        await connection.close()
    word: bytes = answer[0]
    return word


def test_fleet_behind_sentinels_never_logs_the_password(service: Sentinels, namespace: str, tmp_path: Path) -> None:
    fleet = RunningFleet(service.url, namespace, tmp_path, durability="wait")
    try:
        fleet.start()
        fleet.client.enqueue("note", args=["a"], queue="default")
        fleet.wait_for("end", label="a")
        assert fleet.metrics().total("rota_redis_up") == 1
        until(lambda: fleet.metrics().total("rota_tasks_enqueued_total") == 1, "a reading of the primary")
    finally:
        fleet.close()
    assert PASSWORD not in fleet.log_text()


# Durability


def test_waitaof_is_refused_if_the_server_lacks_it(server: Server, tmp_path: Path) -> None:
    code, said = checked(tmp_path, server.url, ROTA_DURABILITY="waitaof")
    assert code == 78
    assert "needs Redis or Valkey 7.2 or later" in said or "set appendonly yes" in said


def test_durability_wait_without_a_replica_is_a_warning(server: Server, tmp_path: Path) -> None:
    code, said = checked(tmp_path, server.url, ROTA_DURABILITY="wait")
    assert code == 0
    assert "warning: durability" in said
    assert "no replica" in said


def test_durability_wait_with_an_embedded_server_is_refused(tmp_path: Path) -> None:
    url = f"redis://127.0.0.1:{free_port()}/0"
    done = run_rota(tmp_path, "run", "--embedded", ROTA_REDIS_URL=url, ROTA_DURABILITY="wait")
    assert done.returncode == 78
    assert "--embedded has none" in done.stderr


def test_embedded_server_with_sentinels_is_refused(tmp_path: Path) -> None:
    done = run_rota(tmp_path, "run", "--embedded", ROTA_REDIS_URL="redis+sentinel://127.0.0.1/mymaster")
    assert done.returncode == 78
    assert "without sentinels" in done.stderr
