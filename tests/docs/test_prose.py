"""The examples on the pages work. Tests run the commands of a page in order and with a real server, as a reader
would.
"""

import ast
import json
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.prometheus import binary
from support.prose import ROOT, Block, blocks, markdown_files, verbs
from support.story import Story

_PARSERS: dict[str, Callable[[str], object]] = {"python": ast.parse, "toml": tomllib.loads, "json": json.loads}
_READABLE = [block for page in markdown_files() for block in blocks(page) if block.language in _PARSERS]
# `make wheel` runs the pages that install Rota.
_STORIES = [page for page in markdown_files() if verbs(page) and "install" not in verbs(page)]


@pytest.mark.parametrize("block", _READABLE, ids=str)
def test_code_blocks_on_pages_can_be_parsed(block: Block) -> None:
    _PARSERS[block.language](block.text)


@pytest.fixture
def story(tmp_path: Path) -> Iterator[Story]:
    """Yield a story whose folder holds the examples."""
    shutil.copytree(
        ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("*.jsonl", ".rota", "__pycache__")
    )
    told = Story(tmp_path)
    yield told
    told.close()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", _STORIES, ids=lambda page: str(page.relative_to(ROOT)))
def test_each_page_works_if_its_examples_are_run_in_order(page: Path, story: Story) -> None:
    if page.parent != ROOT:
        story.folder = story.folder / page.parent.relative_to(ROOT)
        story.folder.mkdir(exist_ok=True)
    told = [block for block in blocks(page) if block.verb]
    if any("redis-cli" in block.text for block in told):
        binary("redis-cli")
    if not any("--embedded" in block.text or block.verb == "serve" for block in told):
        story.serve()
    for block in told:
        story.follow(block)
    assert story.fleet is None, "the page leaves a fleet running"


@pytest.mark.parametrize("folder", sorted({test.parent.name for test in (ROOT / "examples").glob("*/test_*.py")}))
def test_plain_pytest_collects_the_tests_of_each_example(folder: str) -> None:
    """Pytest runs as it does for users, without the plugins and options of this repository's tests."""
    plugins = [f"-pno:{name}" for name in ("timeout", "xdist", "cacheprovider")]
    asked = [sys.executable, "-B", "-m", "pytest", "-q", "--collect-only", *plugins]
    collected = subprocess.run(asked, cwd=ROOT / "examples" / folder, capture_output=True, text=True, check=False)
    assert collected.returncode == 0, collected.stdout + collected.stderr


_ASK_UNTIL_DONE = """
import time
from produce import handle
deadline = time.monotonic() + 30
while (status := handle.status()).state != "done" and time.monotonic() < deadline:
    time.sleep(0.05)
print(handle.id, status.state, status.run_seconds)
"""


@pytest.mark.timeout(300)
def test_readme_task_is_done_with_its_run_time(story: Story) -> None:
    told = [block for block in blocks(ROOT / "README.md") if block.verb]
    begin = next(place for place, block in enumerate(told) if block.argument == "tasks.py")
    end = next(place for place, block in enumerate(told) if place > begin and "python produce.py" in block.text)
    for block in told[begin:end]:
        story.follow(block)
    (story.folder / "ask.py").write_text(_ASK_UNTIL_DONE)
    task_id, state, run_seconds = story.run("python ask.py").splitlines()[-1].split()
    assert (state, float(run_seconds) > 0) == ("done", True)
    shown = json.loads(story.run(f"rota --json task show {task_id}"))
    assert (shown["state"], shown["name"], shown["run_seconds"]) == ("done", "resize", float(run_seconds))
    assert "state:             done" in story.run(f"rota task show {task_id}")
    story.run("rota stop")
