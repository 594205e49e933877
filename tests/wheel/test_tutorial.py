"""The contents of the wheel, and the whole tutorial in an environment with nothing else installed."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest

from support.prose import ROOT, blocks
from support.story import Story

PAGE = ROOT / "docs/tutorial.md"


@pytest.fixture
def newcomer(tmp_path: Path) -> Iterator[Story]:
    """Yield an empty environment in which pip finds the wheel in dist/."""
    wheels = list((ROOT / "dist").glob("*.whl"))
    assert len(wheels) == 1, "run `make wheel`, which builds the wheel that this test installs"
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    constraints = (ROOT / "requirements/constraints.txt").read_text(encoding="utf-8")
    (tmp_path / "constraints.txt").write_text(f"{constraints}rota=={wheels[0].name.split('-')[1]}\n")
    shop = tmp_path / "shop"
    shop.mkdir()
    told = Story(shop, tmp_path / "venv/bin")
    told.env |= {"PIP_CONSTRAINT": str(tmp_path / "constraints.txt"), "PIP_FIND_LINKS": str(ROOT / "dist")}
    yield told
    told.close()


def test_the_wheel_has_the_files_of_the_status_page() -> None:
    [wheel] = (ROOT / "dist").glob("*.whl")
    folder = "supervisor/rota_supervisor/exporter/site"
    packed = {Path(name).name for name in ZipFile(wheel).namelist() if "/exporter/site/" in name}
    assert packed == {file.name for file in (ROOT / folder).iterdir()}
    assert "index.html" in packed


@pytest.mark.timeout(300)
def test_the_tutorial_works_as_it_is_written(newcomer: Story) -> None:
    told = [block for block in blocks(PAGE) if block.verb]
    assert [block.verb for block in told].count("start") == 1
    for block in told:
        newcomer.follow(block)
    assert newcomer.fleet is None, "the tutorial leaves a fleet running"
