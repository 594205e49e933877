"""The commands of a documentation page, run in order as a reader would run them, in a separate folder and with at most
one fleet.

Each page runs in its own network namespace, where every port of the loopback interface is free. The shell has no
variables of Rota, so the addresses that the page shows are used.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
import redis

from support.prose import Block
from support.servers import server_binaries

READY_SECONDS = 60.0
STEP_SECONDS = 60.0
_OF_ROTA = ("ROTA_", "REDIS_URL")
_HOLD = """
import fcntl, socket, struct, sys
SIOCSIFFLAGS, IFF_UP, IFF_RUNNING = 0x8914, 0x1, 0x40
with socket.socket() as any_socket:
    fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sH22x", b"lo", IFF_UP | IFF_RUNNING))
print("up", flush=True)
sys.stdin.read()
"""


class Loopback:
    """A network namespace with only a loopback interface. `prefix` is the command that runs a program in it."""

    def __init__(self) -> None:
        is_root = os.geteuid() == 0
        making = ["unshare", "--net", *([] if is_root else ["--map-root-user"])]
        self._holder = subprocess.Popen(
            [*making, sys.executable, "-c", _HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._holder.stdout is not None
        if self._holder.stdout.readline() != b"up\n":
            self.close()
            pytest.skip("no network namespace can be made here: that takes unshare, and root or user namespaces")
        entering = ["--net"] if is_root else ["--net", "--user", "--preserve-credentials"]
        self.prefix = ["nsenter", f"--target={self._holder.pid}", *entering, "--"]

    def close(self) -> None:
        """Release the namespace. The kernel removes the namespace when the last process in it ends."""
        assert self._holder.stdin is not None
        assert self._holder.stdout is not None
        self._holder.stdin.close()
        self._holder.stdout.close()
        self._holder.wait()


class Story:
    """A page that is being run: its folder, its server, its fleet, and the output of its last command."""

    def __init__(self, folder: Path, programs: Path = Path(sys.executable).parent) -> None:
        self.folder = folder
        self.loopback = Loopback()
        self.fleet: subprocess.Popen[bytes] | None = None
        self.log = folder / "fleet.log"
        self._server: subprocess.Popen[bytes] | None = None
        self._written = ""
        self.env = {name: value for name, value in os.environ.items() if not name.startswith(_OF_ROTA)} | {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "XDG_RUNTIME_DIR": str(folder),
        }

    def serve(self, options: Sequence[str] = ("--save", "", "--appendonly", "no")) -> None:
        """Stop the previous server, and start one on the default port."""
        if self._server is not None:
            self._server.wait(STEP_SECONDS)
        place = self.folder / "server.sock"
        always = ["--unixsocket", str(place), "--daemonize", "no"]
        command = [*self.loopback.prefix, server_binaries()["valkey"], *options, *always]
        self._server = subprocess.Popen(command, cwd=self.folder, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + READY_SECONDS
        while not _is_reachable(place):
            assert self._server.poll() is None, "the server ended"
            assert time.monotonic() < deadline, "the server does not respond"
            time.sleep(0.02)

    def follow(self, block: Block) -> None:
        """Carry out the instruction of a block, for example write the block to a file or run it."""
        match block.verb:
            case "file":
                (self.folder / block.argument).write_text(block.text)
            case "append":
                with (self.folder / block.argument).open("a") as file:
                    file.write(f"\n\n{block.text}")
            case "run" | "install":
                self._run(block)
            case "output":
                self._compare(block)
            case "start":
                self._start(block)
            case "serve":
                self.serve(shlex.split(block.text)[1:])
            case other:
                raise AssertionError(f"{block}: no such thing to do: {other!r}")

    def _shell(self, text: str) -> list[str]:
        # Pip runs outside the namespace, where it can reach the package index.
        prefix = [] if "pip install" in text else self.loopback.prefix
        return [*prefix, "bash", "-euo", "pipefail", "-c", text]

    def run(self, text: str) -> str:
        """Run commands in a shell, and return their output."""
        done = subprocess.run(
            self._shell(text),
            cwd=self.folder,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=STEP_SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{text}: {done.returncode}\n{done.stdout}\n{done.stderr}\n{self._fleet_log()}"
        return done.stdout

    def _run(self, block: Block) -> None:
        self._written = self.run(block.text)
        if "rota stop" in block.text:
            self._wait_for_the_end(block)

    def _compare(self, block: Block) -> None:
        # As in doctest, `...` matches anything. Differences in the width of columns are ignored.
        expected = r".*?".join(map(_spaced, block.text.split("...")))
        assert re.search(expected, self._written, re.DOTALL), f"{block}: shows\n{block.text}\nbut is\n{self._written}"

    def _start(self, block: Block) -> None:
        assert self.fleet is None, f"{block}: a fleet is running already"
        *before, last = block.text.rstrip().splitlines()
        text = "\n".join([*before, f"exec {last}"])
        with self.log.open("ab") as log:
            self.fleet = subprocess.Popen(self._shell(text), cwd=self.folder, env=self.env, stdout=log, stderr=log)
        self._wait_until_ready(block, before, last)

    def _wait_until_ready(self, block: Block, before: list[str], last: str) -> None:
        assert self.fleet is not None
        rota = f"{last.partition('rota ')[0]}rota"  # the words before `rota` may be a framework's command
        asking = self._shell("\n".join([*before, f"exec {rota} health --ready"]))
        deadline = time.monotonic() + READY_SECONDS
        while subprocess.run(asking, cwd=self.folder, env=self.env, capture_output=True, check=False).returncode:
            assert self.fleet.poll() is None, f"{block}: the fleet ended\n{self._fleet_log()}"
            assert time.monotonic() < deadline, f"{block}: the fleet is not ready\n{self._fleet_log()}"
            time.sleep(0.1)

    def _wait_for_the_end(self, block: Block) -> None:
        assert self.fleet is not None, f"{block}: no fleet to stop"
        assert self.fleet.wait(STEP_SECONDS) == 0, f"{block}\n{self._fleet_log()}"
        self.fleet = None

    def _fleet_log(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def close(self) -> None:
        """Stop the server, and the fleet if the story failed."""
        if self.fleet is not None and self.fleet.poll() is None:
            self.fleet.send_signal(signal.SIGQUIT)
            self.fleet.wait(STEP_SECONDS)
        if self._server is not None:
            self._server.kill()
            self._server.wait()
        self.loopback.close()


def _is_reachable(place: Path) -> bool:
    try:
        with redis.Redis(unix_socket_path=str(place)) as client:
            return bool(client.ping())
    except redis.ConnectionError:
        return False


def _spaced(text: str) -> str:
    return r"\s+".join(map(re.escape, re.split(r"\s+", text)))
