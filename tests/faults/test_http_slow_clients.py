"""The clients of a real exporter are slow, silent, half open or greedy, or send garbage. The exporter nevertheless
responds to health checks within a second, closes every connection in the end, and logs nothing.
"""

import json
import os
import random
import resource
import signal
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from rota.child.slots import MASTER_SLOT, Phase
from rota.telemetry import metrics as m
from rota_supervisor.config.model import Limits
from rota_supervisor.exporter.http_connection import MAX_HEAD_BYTES, MAX_HEAD_LINES
from rota_supervisor.exporter.http_server import MAX_CLIENTS, MAX_PAGES
from rota_supervisor.layout import EXPORTER_SLOT
from support.exporting import DEADLINE_SECONDS, Exporter, small_fleet
from support.fleets import Fleets, Measure
from support.masters import ON_ONE_SERVER
from support.waiting import repeating, seconds_until, until

NO_SERVER = "redis://127.0.0.1:1/0"
PROBE_SECONDS = 1.0  # the default timeout of a kubelet probe
SPARE = 8  # spare file descriptors, for inspecting a process and for additional clients
OPENING = b"GET /livez HTTP/1.1\r\nHost: here\r\n"
RESET = struct.pack("ii", 1, 0)  # the value of SO_LINGER with which closing a socket resets the connection


@pytest.fixture
def exporter(namespace: str, capfd: pytest.CaptureFixture[str]) -> Iterator[Exporter]:
    """Yield an exporter that cannot reach Redis, but whose master still sends heartbeats."""
    made = small_fleet(NO_SERVER, namespace)
    # With larger buffers, the kernel would accept the whole response at once.
    made.listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    try:
        with repeating(made.memory.slot(MASTER_SLOT).heartbeat, 0.2):
            made.start()
            made.get("/metrics")
            before = descriptors(made)
            yield made
            if made.spawned is not None:
                until(lambda: descriptors(made) <= before, "no client holds a descriptor")
    finally:
        made.close()
    lines = "".join(capfd.readouterr()).splitlines()
    assert {json.loads(line)["event"] for line in lines} == {"exporter.started"}


def accepted_clients(exporter: Exporter) -> set[int]:
    """Return the local ports of the clients whose connections the exporter has accepted. Connections that are waiting
    to be accepted have no inode in the kernel yet.
    """
    return {each.raddr.port for each in psutil.Process(exporter.pid).net_connections("tcp4") if each.raddr}


def descriptors(exporter: Exporter) -> int:
    return len(list(Path(f"/proc/{exporter.pid}/fd").iterdir()))


def connect(exporter: Exporter, sent: bytes = b"") -> socket.socket:
    client = socket.create_connection(exporter.listener.getsockname(), timeout=DEADLINE_SECONDS)
    client.sendall(sent)
    return client


def received(client: socket.socket) -> bytes:
    """Return everything that the client receives until the exporter closes the connection."""
    parts = []
    with client:
        while part := client.recv(1 << 16):
            parts.append(part)
    return b"".join(parts)


def status_of(answer: bytes) -> int:
    return int(answer.split(maxsplit=2)[1])


def probe(exporter: Exporter) -> float:
    """Make both health checks as a kubelet does, and return the longer of the two response times in seconds."""
    took = []
    for path in ("livez", "readyz"):
        began = time.monotonic()
        with connect(exporter, f"GET /{path} HTTP/1.1\r\nHost: here\r\n\r\n".encode()) as client:
            client.settimeout(PROBE_SECONDS)
            assert status_of(client.recv(4096)) == 200
        took.append(time.monotonic() - began)
    assert max(took) < PROBE_SECONDS
    return max(took)


def is_disconnected(client: socket.socket, more: bytes = b"") -> bool:
    """Send `more` to the exporter, and return whether the exporter has closed the connection of this client."""
    try:
        client.sendall(more)
        return client.recv(4096, socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def probe_until_disconnected(exporter: Exporter, clients: list[socket.socket], more: bytes = b"") -> float:
    """Repeat the health checks until the exporter has disconnected all of these clients. Returns the longest response
    time in seconds.
    """
    slowest = probe(exporter)
    deadline = time.monotonic() + DEADLINE_SECONDS
    while clients:
        assert time.monotonic() < deadline, f"{len(clients)} are still there"
        left = [client for client in clients if not is_disconnected(client, more)]
        for client in set(clients).difference(left):
            client.close()
        clients = left
        slowest = max(slowest, probe(exporter))
        time.sleep(0.1)
    return slowest


@pytest.mark.parametrize("count", [16, 64])
def test_byte_by_byte_requests_never_block_health_checks(exporter: Exporter, measured: Measure, count: int) -> None:
    clients = [connect(exporter, OPENING + b"Slow: ") for _ in range(count)]
    slowest = probe(exporter)
    assert exporter.get("/metrics").status == 200
    slowest = max(slowest, probe_until_disconnected(exporter, clients, b"a"))
    measured(f"slowest health in s beside {count} slow clients", slowest)


def test_a_thousand_idle_connections_use_few_descriptors(exporter: Exporter, measured: Measure) -> None:
    before = descriptors(exporter)
    clients = [connect(exporter) for _ in range(1000)]
    slowest = probe(exporter)
    assert descriptors(exporter) <= before + MAX_CLIENTS + SPARE
    assert exporter.get("/metrics").status == 200
    slowest = max(slowest, probe_until_disconnected(exporter, clients))
    measured("slowest health in s beside 1,000 idle connections", slowest)


def test_idle_connections_do_not_exhaust_a_low_limit_of_descriptors(exporter: Exporter) -> None:
    assert exporter.end() == 0
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, limits[1]))
    try:
        exporter.start()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    probe_until_disconnected(exporter, [connect(exporter) for _ in range(200)])


def test_clients_that_never_read_are_disconnected(exporter: Exporter, measured: Measure) -> None:
    for number in range(2000):
        exporter.master.counter(m.TASKS_PROCESSED, "mail", f"task-{number}", "done").add()
    clients = [connect(exporter) for _ in range(2 * MAX_PAGES)]
    for client in clients:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
    slowest = 0.0
    deadline = time.monotonic() + DEADLINE_SECONDS
    while (page := exporter.get("/metrics")).status != 200:
        assert time.monotonic() < deadline, "no other client gets a page"
        slowest = max(slowest, probe(exporter))
    assert "task-1999" in page.body
    before = descriptors(exporter)
    while descriptors(exporter) > before - MAX_PAGES:
        assert time.monotonic() < deadline, "they are still there"
        slowest = max(slowest, probe(exporter))
        time.sleep(0.1)
    for client in clients:
        client.close()
    measured("slowest health in s beside clients that never read", slowest)


def test_flood_of_garbage_never_blocks_health_checks(exporter: Exporter, measured: Measure) -> None:
    rng = random.Random(10)
    slowest = 0.0
    for _ in range(40):
        clients = [connect(exporter) for _ in range(20)]
        for client in clients:
            client.setblocking(False)
            is_disconnected(client, rng.randbytes(rng.randrange(1, 1 << 16)))
        slowest = max(slowest, probe(exporter))
        for client in clients:
            client.close()
    measured("slowest health in s in a flood of garbage", slowest)


def test_connections_reset_by_clients_do_not_harm_the_exporter(exporter: Exporter) -> None:
    for number in range(200):
        with connect(exporter, OPENING[: number % 40] if number % 2 else b"GET /metrics HTTP/1.0\r\n\r\n") as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    probe(exporter)


def test_a_half_closed_client_that_sent_a_complete_request_is_served(exporter: Exporter) -> None:
    for path in ("livez", "metrics"):
        client = connect(exporter, f"GET /{path} HTTP/1.0\r\n\r\n".encode())
        client.shutdown(socket.SHUT_WR)
        assert status_of(received(client)) == 200
    unfinished = connect(exporter, OPENING)
    unfinished.shutdown(socket.SHUT_WR)
    assert received(unfinished) == b""


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (OPENING + b"Long: " + b"a" * (1 << 20) + b"\r\n\r\n", 431),
        (OPENING + b"".join(b"H%d: a\r\n" % number for number in range(100_000)) + b"\r\n", 431),
        (OPENING + b"a: b\r\n" * (MAX_HEAD_LINES - 2) + b"\r\n", 200),
        (b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: here\r\n\r\n", 431),
        (b"GET /" + b"a" * (MAX_HEAD_BYTES // 2) + b" HTTP/1.1\r\nHost: here\r\n\r\n", 404),
        (OPENING + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n", 400),
        (OPENING + b"Content-Length: -5\r\n\r\n", 400),
        (OPENING + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n", 400),
        (OPENING + b"Content-Length: 5\r\n\r\nhello", 200),
        (OPENING + b"Content-Length: 99999999999999999999\r\n\r\n" + b"hello" * 100_000, 200),
        (OPENING + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", 200),
        (OPENING + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffffff\r\n", 200),
        (OPENING + b"Transfer-Encoding: gzip\r\n\r\n", 501),
        (OPENING + b"\r\n" + (OPENING + b"\r\n") * 1000, 200),
        (b"POST /livez HTTP/1.1\r\nHost: here\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n", 405),
        (b"BREW /livez HTTP/1.1\r\nHost: here\r\n\r\n", 405),
        (b"GET /livez HTTP/1.1\r\n\r\n", 400),
        (b"GET /livez\r\n\r\n", 400),
        (b"GET\r\n\r\n", 400),
        (b"GET /livez HTTP/1.1 and more\r\nHost: here\r\n\r\n", 400),
        (b"GET /\x00livez HTTP/1.1\r\nHost: here\r\n\r\n", 400),
        (OPENING + b"Null: \x00\r\n\r\n", 400),
        (OPENING + b"No colon\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (b"\x00" * 100, 400),
    ],
    ids=lambda value: value if isinstance(value, int) else None,
)
def test_every_request_gets_one_reply_and_is_closed(exporter: Exporter, request_bytes: bytes, status: int) -> None:
    answer = received(connect(exporter, request_bytes))
    assert status_of(answer) == status
    assert answer.count(b"HTTP/1.1 ") == 1
    assert b"Connection: close\r\n" in answer
    probe(exporter)


def test_draining_exporter_serves_connected_clients(exporter: Exporter) -> None:
    client = connect(exporter, OPENING)
    until(lambda: client.getsockname()[1] in accepted_clients(exporter), "the exporter has accepted the client")
    os.kill(exporter.pid, signal.SIGTERM)
    until(lambda: exporter.memory.slot(EXPORTER_SLOT).phase is Phase.DRAINING, "the exporter drains")
    client.sendall(b"\r\n")
    assert status_of(received(client)) == 200
    assert exporter.wait() == 0


@ON_ONE_SERVER
def test_stopped_exporter_is_replaced_within_seconds(fleets: Fleets, measured: Measure) -> None:
    fleet = fleets.start(workers=1)
    [stopped] = fleet.pids("exporter", "ready")
    os.kill(stopped, signal.SIGSTOP)
    took = seconds_until(lambda: fleet.pids("exporter", "ready") - {stopped}, "another exporter")
    measured("seconds until a stopped exporter is replaced", took)
    assert took < Limits().beat_seconds / 2
    assert fleet.get("/livez") == (200, "ok\n")
    [gone] = fleet.log("exporter.exited")
    assert (gone["reason"], gone["stopped"], gone["limit_value"]) == ("hung", True, 0.5)
