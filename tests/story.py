"""A page is followed as a reader would: its commands in order, in a folder of their own, with at most one fleet."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from prose import Block
from servers import Server, free_port

READY_SECONDS = 60.0
STEP_SECONDS = 60.0
_LISTEN = "127.0.0.1:9477"


class Story:
    """What became of the page so far. Server and exporter listen elsewhere than the page says: more stories may run."""

    def __init__(self, folder: Path, server: Server, programs: Path = Path(sys.executable).parent) -> None:
        self.folder = folder
        self.server = server
        self.fleet: subprocess.Popen[bytes] | None = None
        self.log = folder / "fleet.log"
        self._listen = f"127.0.0.1:{free_port()}"
        self._written = ""
        self.env = {name: value for name, value in os.environ.items() if not name.startswith("ROTA_")} | {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "XDG_RUNTIME_DIR": str(folder),
            "ROTA_REDIS_URL": server.url,
            "ROTA_HTTP__LISTEN": self._listen,
        }

    def tell(self, block: Block) -> None:
        """Do what the block asks for."""
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
            case other:
                raise AssertionError(f"{block}: no such thing to do: {other!r}")

    def _shell(self, text: str) -> list[str]:
        return ["bash", "-euo", "pipefail", "-c", text.replace(_LISTEN, self._listen)]

    def run(self, text: str) -> str:
        """Run commands in a shell; returns what they write."""
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
        # As doctest does: `...` stands for anything, and the width of columns does not count.
        expected = r".*?".join(map(_spaced, block.text.split("...")))
        assert re.search(expected, self._written, re.DOTALL), f"{block}: shows\n{block.text}\nbut is\n{self._written}"

    def _start(self, block: Block) -> None:
        assert self.fleet is None, f"{block}: a fleet is running already"
        if "--embedded" in block.text:
            self.env["ROTA_REDIS_URL"] = f"redis://127.0.0.1:{free_port()}/0"
        *before, last = block.text.rstrip().splitlines()
        text = "\n".join([*before, f"exec {last}"])
        with self.log.open("ab") as log:
            self.fleet = subprocess.Popen(self._shell(text), cwd=self.folder, env=self.env, stdout=log, stderr=log)
        self._wait_until_ready(block, before, last)

    def _wait_until_ready(self, block: Block, before: list[str], last: str) -> None:
        assert self.fleet is not None
        rota = f"{last.partition('rota ')[0]}rota"  # or what a framework calls it by
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
        self.env["ROTA_REDIS_URL"] = self.server.url

    def _fleet_log(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def close(self) -> None:
        """End the fleet of a story that broke off."""
        if self.fleet is not None and self.fleet.poll() is None:
            self.fleet.send_signal(signal.SIGQUIT)
            self.fleet.wait(STEP_SECONDS)


def _spaced(text: str) -> str:
    return r"\s+".join(map(re.escape, re.split(r"\s+", text)))
