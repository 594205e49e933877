"""The Makefile documents its targets, and has every target that is called by the hooks and by hosted CI."""

import re
import subprocess
import sys

import yaml

from support.prose import ROOT

_PHONY = re.compile(r"^\.PHONY: ((?:.*\\\n)*.*)$", re.MULTILINE)
_MADE = re.compile(r"make ([a-z0-9-]+)")


def _targets() -> set[str]:
    (targets,) = _PHONY.findall((ROOT / "Makefile").read_text(encoding="utf-8"))
    return set(targets.replace("\\", "").split())


def test_make_without_a_target_lists_every_target() -> None:
    shown = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert set(re.findall(r"^  make (\S+)", shown, re.MULTILINE)) == _targets()


def test_git_hooks_run_existing_targets() -> None:
    config = ROOT / ".pre-commit-config.yaml"
    subprocess.run([sys.executable, "-m", "pre_commit", "validate-config", str(config)], check=True)
    hooks = [hook for repo in yaml.safe_load(config.read_text())["repos"] for hook in repo["hooks"]]
    called = {target for hook in hooks for target in _MADE.findall(hook["entry"])}
    assert {"lint", "check"} <= called <= _targets()


def test_hosted_ci_runs_the_ci_script() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
    commands = [step["run"] for step in workflow["jobs"]["ci"]["steps"] if "run" in step]
    assert len(commands) == 1
    assert commands[0].endswith("bash .ci/run")
    called = set(re.findall(r"^step make ([a-z0-9-]+)", (ROOT / ".ci/run").read_text(), re.MULTILINE))
    assert {"test", "demo"} < called <= _targets()
