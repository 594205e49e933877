"""The Makefile documents itself."""

import re
import subprocess

from prose import ROOT

_PHONY = re.compile(r"^\.PHONY: (.*)$", re.MULTILINE)


def test_make_alone_lists_every_target() -> None:
    shown = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    (targets,) = _PHONY.findall((ROOT / "Makefile").read_text(encoding="utf-8"))
    assert set(re.findall(r"^  make (\S+)", shown, re.MULTILINE)) == set(targets.split())
