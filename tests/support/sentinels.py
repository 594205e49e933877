"""A primary, two replicas and three sentinels on free ports of this machine, for tests of failovers."""

import os
import signal
import subprocess
from pathlib import Path
from typing import Final, Self

import redis

from support.servers import Server, free_port
from support.waiting import until

SERVICE: Final = "mymaster"
SENTINELS: Final = 3
REPLICAS: Final = 2
DOWN_AFTER_SECONDS: Final = 1.0
_FAILOVER_SECONDS: Final = 5.0  # a failover without progress is retried after twice this time


class Sentinel:
    """A sentinel process that watches `port` under the name SERVICE."""

    def __init__(self, binary: str, folder: Path, port: int, password: str = "") -> None:
        self.port = free_port()
        self._binary = binary
        self._folder = folder
        folder.mkdir()
        lines = [
            f"port {self.port}",
            "bind 127.0.0.1",
            f"dir {folder}",
            f"sentinel monitor {SERVICE} 127.0.0.1 {port} 2",
            f"sentinel down-after-milliseconds {SERVICE} {DOWN_AFTER_SECONDS * 1000:.0f}",
            f"sentinel failover-timeout {SERVICE} {_FAILOVER_SECONDS * 1000:.0f}",
        ]
        if password:
            lines.append(f"requirepass {password}")
        (folder / "sentinel.conf").write_text("\n".join(lines) + "\n")
        self.process = self._start()

    def _start(self) -> "subprocess.Popen[bytes]":
        with (self._folder / "sentinel.log").open("ab") as log:
            return subprocess.Popen(
                [self._binary, str(self._folder / "sentinel.conf"), "--sentinel"], stdout=log, stderr=log
            )

    def start_again(self) -> None:
        """Start the sentinel again after a kill, with the state that it had stored."""
        self.process = self._start()

    def kill(self) -> None:
        """Send SIGKILL."""
        self.process.kill()
        self.process.wait()


class Sentinels:
    """A small version of a production setup. `options` are for the servers, and `password` is for the sentinels."""

    def __init__(self, binary: str, folder: Path, password: str = "", **options: str) -> None:
        self._binary = binary
        self._folder = folder
        self._password = password
        self._options = {"repl_ping_replica_period": "1", "repl_diskless_sync_delay": "0", **options}
        self.servers: list[Server] = []
        self.sentinels: list[Sentinel] = []

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _start(self) -> None:
        first = self._add_server()
        for _ in range(REPLICAS):
            self._add_server(replicaof=f"127.0.0.1 {first.port}")
        until(lambda: self.replicated(first), "replicas that have all")
        for number in range(SENTINELS):
            folder = self._folder / f"sentinel-{number}"
            self.sentinels.append(Sentinel(self._binary, folder, first.port, self._password))
        until(lambda: all(self._knows_all(each) for each in self.sentinels), "sentinels that know of each other")

    def _add_server(self, **options: str) -> Server:
        folder = self._folder / f"server-{len(self.servers)}"
        folder.mkdir()
        server = Server(self._binary, folder, **self._options, **options)
        self.servers.append(server)
        return server.start()

    def _knows_all(self, sentinel: Sentinel) -> bool:
        try:
            with self._client_of(sentinel) as asking:
                state = asking.sentinel_masters()[SERVICE]
        except redis.ConnectionError:  # the server is starting
            return False
        seen: tuple[int, int] = (int(state["num-slaves"]), int(state["num-other-sentinels"]))
        return seen == (REPLICAS, SENTINELS - 1)

    def _client_of(self, sentinel: Sentinel) -> "redis.Redis":
        return redis.Redis(port=sentinel.port, password=self._password or None, decode_responses=True)

    # Inspection

    @property
    def url(self) -> str:
        """The URL with which applications and fleets connect. It names the sentinels."""
        places = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        option = f"?sentinel_password={self._password}" if self._password else ""
        return f"redis+sentinel://{places}/{SERVICE}/0{option}"

    def primary(self) -> Server:
        """Return the primary that the first living sentinel reports."""
        living = next(sentinel for sentinel in self.sentinels if sentinel.process.poll() is None)
        with self._client_of(living) as asking:
            _, port = asking.sentinel_get_master_addr_by_name(SERVICE)
        return next(server for server in self.servers if server.port == port)

    def replicas(self) -> list[Server]:
        """Return all servers except the primary."""
        primary = self.primary()
        return [server for server in self.servers if server is not primary]

    def role(self, server: Server) -> str:
        """Return the role that a server reports, or "" while the server does not respond."""
        try:
            with redis.Redis(port=server.port, socket_timeout=1, decode_responses=True) as asking:
                said: str = asking.role()[0]
        except (redis.ConnectionError, redis.TimeoutError):
            return ""
        return said

    def replicated(self, primary: Server) -> bool:
        """Whether every replica has the data that the primary had at the time of the call. False if the server is not a
        primary.
        """
        try:
            with redis.Redis(port=primary.port) as asking:
                asking.incr("written")
                have_it: int = asking.wait(REPLICAS, 100)
        except redis.ReadOnlyError:  # on a loaded machine the sentinels may have chosen another primary in the meantime
            return False
        return have_it == REPLICAS

    # Actions

    def kill_primary(self) -> Server:
        """Send SIGKILL to the primary, and return it."""
        killed = self.primary()
        killed.kill()
        return killed

    def wait_for_another(self, old: Server) -> Server:
        """Wait until all living sentinels report a new primary, and the new primary confirms its role. Return the new
        primary.
        """

        def found() -> Server | None:
            now = self.primary()
            return now if now is not old and self.role(now) == "master" else None

        new = until(found, "a failover")
        assert new is not None
        return new

    def fail_over(self) -> None:
        """Request an orderly failover, as an operator does before the upgrade of a server."""
        with self._client_of(self.sentinels[0]) as asking:
            asking.execute_command("SENTINEL", "FAILOVER", SERVICE)

    def stop_replicas(self) -> list[Server]:
        """Send SIGSTOP to the replicas, so that nothing is replicated to them, and return them."""
        stopped = self.replicas()
        for server in stopped:
            os.kill(server.pid, signal.SIGSTOP)
        return stopped

    def stop(self) -> None:
        """Kill all processes, whatever their state."""
        for sentinel in self.sentinels:
            sentinel.kill()
        for server in self.servers:
            server.stop()
