"""What the prose shows is run: commands in order, against a real server, as a reader would."""

import ast
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from prose import ROOT, Block, blocks, markdown_files
from servers import Server, free_port, server_binaries

READY_SECONDS = 60.0
STEP_SECONDS = 60.0

_PARSERS: dict[str, Callable[[str], object]] = {"python": ast.parse, "toml": tomllib.loads, "json": json.loads}
_READABLE = [block for page in markdown_files() for block in blocks(page) if block.language in _PARSERS]
_STORIES = [page for page in markdown_files() if any(block.verb for block in blocks(page))]


@pytest.mark.parametrize("block", _READABLE, ids=str)
def test_code_in_prose_is_well_formed(block: Block) -> None:
    _PARSERS[block.language](block.text)


class Story:
    """The commands of one page in a folder of their own: at most one fleet runs, in the background."""

    def __init__(self, folder: Path, server: Server) -> None:
        self.folder = folder
        self.server = server
        self.fleet: subprocess.Popen[bytes] | None = None
        self.log = folder / "fleet.log"
        self.env = {name: value for name, value in os.environ.items() if not name.startswith("ROTA_")} | {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "XDG_RUNTIME_DIR": str(folder),
            "ROTA_REDIS_URL": server.url,
            "ROTA_HTTP__LISTEN": "127.0.0.1:0",
        }

    def tell(self, block: Block) -> None:
        """Do what the block asks for."""
        match block.verb:
            case "file":
                (self.folder / block.argument).write_text(block.text)
            case "run":
                self._run(block)
            case "start":
                self._start(block)
            case other:
                raise AssertionError(f"{block}: no such thing to do: {other!r}")

    def _shell(self, text: str) -> list[str]:
        return ["bash", "-euo", "pipefail", "-c", text]

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
        self.run(block.text)
        if "rota stop" in block.text:
            self._wait_for_the_end(block)

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


@pytest.fixture
def story(tmp_path: Path) -> Iterator[Story]:
    """A folder that holds the examples, and a server."""
    shutil.copytree(
        ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("*.jsonl", ".rota", "__pycache__")
    )
    server_folder = tmp_path / "server"
    server_folder.mkdir()
    server = Server(server_binaries()["valkey"], server_folder).start()
    told = Story(tmp_path, server)
    yield told
    told.close()
    server.stop()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", _STORIES, ids=lambda page: str(page.relative_to(ROOT)))
def test_following_the_page_works(page: Path, story: Story) -> None:
    if page.parent != ROOT:
        story.folder = story.folder / page.parent.relative_to(ROOT)
        story.folder.mkdir(exist_ok=True)
    for block in blocks(page):
        if block.verb:
            story.tell(block)
    assert story.fleet is None, "the page leaves a fleet running"


_ASK_UNTIL_DONE = """
import time
from produce import handle
deadline = time.monotonic() + 30
while (status := handle.status()).state != "done" and time.monotonic() < deadline:
    time.sleep(0.05)
print(handle.id, status.state, status.run_seconds)
"""


@pytest.mark.timeout(300)
def test_the_task_of_the_readme_is_told_as_done_with_its_run_time(story: Story) -> None:
    told = [block for block in blocks(ROOT / "README.md") if block.verb]
    begin = next(place for place, block in enumerate(told) if block.argument == "tasks.py")
    end = next(place for place, block in enumerate(told) if place > begin and "python produce.py" in block.text)
    for block in told[begin:end]:
        story.tell(block)
    (story.folder / "ask.py").write_text(_ASK_UNTIL_DONE)
    task_id, state, run_seconds = story.run("python ask.py").splitlines()[-1].split()
    assert (state, float(run_seconds) > 0) == ("done", True)
    shown = json.loads(story.run(f"rota --json task show {task_id}"))
    assert (shown["state"], shown["name"], shown["run_seconds"]) == ("done", "resize", float(run_seconds))
    assert "state:             done" in story.run(f"rota task show {task_id}")
    story.run("rota stop")
