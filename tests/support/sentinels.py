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
_FAILOVER_SECONDS: Final = 5.0  # a failover that does not get on is tried again after twice that


class Sentinel:
    """One sentinel process, watching `port` under the name SERVICE."""

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
        """After a kill, with what it had written down."""
        self.process = self._start()

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait()


class Sentinels:
    """What a service in production has, small. `options` are those of the servers; `password` is the sentinels'."""

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
            with self._ask(sentinel) as asking:
                state = asking.sentinel_masters()[SERVICE]
        except redis.ConnectionError:  # it is starting
            return False
        seen: tuple[int, int] = (int(state["num-slaves"]), int(state["num-other-sentinels"]))
        return seen == (REPLICAS, SENTINELS - 1)

    def _ask(self, sentinel: Sentinel) -> "redis.Redis":
        return redis.Redis(port=sentinel.port, password=self._password or None, decode_responses=True)

    # Looking

    @property
    def url(self) -> str:
        """How applications and fleets name it."""
        places = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        option = f"?sentinel_password={self._password}" if self._password else ""
        return f"redis+sentinel://{places}/{SERVICE}/0{option}"

    def primary(self) -> Server:
        """The one that the first living sentinel names."""
        living = next(sentinel for sentinel in self.sentinels if sentinel.process.poll() is None)
        with self._ask(living) as asking:
            _, port = asking.sentinel_get_master_addr_by_name(SERVICE)
        return next(server for server in self.servers if server.port == port)

    def replicas(self) -> list[Server]:
        """All others."""
        primary = self.primary()
        return [server for server in self.servers if server is not primary]

    def role(self, server: Server) -> str:
        """What a server says that it is; "" while it says nothing."""
        try:
            with redis.Redis(port=server.port, socket_timeout=1, decode_responses=True) as asking:
                said: str = asking.role()[0]
        except (redis.ConnectionError, redis.TimeoutError):
            return ""
        return said

    def replicated(self, primary: Server) -> bool:
        """Whether all that the primary had when this was called is on every replica now; False while it is none."""
        try:
            with redis.Redis(port=primary.port) as asking:
                asking.incr("written")
                have_it: int = asking.wait(REPLICAS, 100)
        except redis.ReadOnlyError:  # on a loaded machine the sentinels may have chosen another one meanwhile
            return False
        return have_it == REPLICAS

    # Doing

    def kill_primary(self) -> Server:
        """SIGKILL the primary; answers it."""
        killed = self.primary()
        killed.kill()
        return killed

    def wait_for_another(self, old: Server) -> Server:
        """Wait until all living sentinels name another primary, and it says so too; answers it."""

        def found() -> Server | None:
            now = self.primary()
            return now if now is not old and self.role(now) == "master" else None

        new = until(found, "a failover")
        assert new is not None
        return new

    def fail_over(self) -> None:
        """Ask for an orderly failover, as before the upgrade of a server."""
        with self._ask(self.sentinels[0]) as asking:
            asking.execute_command("SENTINEL", "FAILOVER", SERVICE)

    def stop_replicas(self) -> list[Server]:
        """SIGSTOP the replicas: from now on nothing is replicated to them; returns them."""
        stopped = self.replicas()
        for server in stopped:
            os.kill(server.pid, signal.SIGSTOP)
        return stopped

    def stop(self) -> None:
        """End all processes, however they are."""
        for sentinel in self.sentinels:
            sentinel.kill()
        for server in self.servers:
            server.stop()
