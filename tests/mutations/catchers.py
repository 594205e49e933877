"""The catchers of bugs. A catcher is a short soak with chosen faults if such a soak finds the bug, and a test
otherwise.
"""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from mutations.changes import ROOT
from mutations.tree import environment
from soak.checker import judge
from soak.evidence import QUIET_FILE, Evidence
from soak.findings import Finding, Wrong
from soak.reading import read_evidence

# Kinds of findings that are certain only when the evidence is complete.
AT_THE_END: Final = frozenset({Wrong.LOST, Wrong.COUNTERS, Wrong.LEFT})
_LOOK_SECONDS: Final = 2.0
_LEAVE_SECONDS: Final = 60.0
CONTROL_EXAMPLES: Final = 200
_OUTPUT: Final = "output.txt"


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a catcher."""

    clean: bool  # whether the catcher ended by itself and found nothing
    found: str  # the expected finding, or "" if there was none
    said: str = ""  # the end of the catcher's output


class Catcher(Protocol):
    """A program that runs on a copy of the product for a limited number of seconds."""

    def run(self, folder: Path, seconds: float) -> Result: ...

    @property
    def name(self) -> str:
        """The name in the table of results."""

    @property
    def control(self) -> "Catcher":
        """The same catcher without an expected finding. If there is no bug, its run must be clean."""


@dataclass(frozen=True, slots=True)
class Soak:
    """A soak with only these faults, each in the form `NAME TARGET AT SECONDS`. The soak is stopped as soon as it has
    made a finding of one of the kinds in `wrong`.
    """

    seconds: float
    faults: tuple[str, ...] = ()
    wrong: frozenset[Wrong] = frozenset()

    @property
    def name(self) -> str:
        return f"soak {self.seconds:g} s: {', '.join(self.faults) or 'no faults'}"

    @property
    def control(self) -> "Soak":
        return Soak(self.seconds, self.faults)

    def run(self, folder: Path, seconds: float) -> Result:
        evidence = folder / "evidence"
        options = ["--profile", "quiet", "--seconds", str(self.seconds), "--seed", "1"]
        options += [word for fault in self.faults for word in ("--fault", fault)]
        command = [sys.executable, "-m", "soak", *options, "--folder", str(evidence), "--keep"]
        found: list[Finding] = []

        def is_caught() -> bool:
            found[:] = self._expected(evidence)
            return bool(found)

        code = _run(command, folder, seconds, is_caught if self.wrong else lambda: False)
        if self.wrong and not found:
            is_caught()
        words = f"{found[0].wrong}: {found[0].text}" if found else ""
        return Result(code == 0, words, _last_lines(folder))

    def _expected(self, folder: Path) -> list[Finding]:
        """Return those findings of the expected kinds that are already certain."""
        try:
            evidence = read_evidence(folder)
        except FileNotFoundError:  # the soak has written nothing yet
            return []
        return [finding for finding in _sure(evidence, folder) if finding.wrong in self.wrong]


def _sure(evidence: Evidence, folder: Path) -> list[Finding]:
    is_whole = (folder / QUIET_FILE).exists()
    return [each for each in judge(evidence).findings if is_whole or each.wrong not in AT_THE_END]


@dataclass(frozen=True, slots=True)
class Tests:
    """Tests of which one must fail with output that matches `says`. `only` is the expression for `pytest -k`.
    `examples` is the number of examples for the model test or the simulation, or 0 for the default number.
    """

    __test__ = False

    path: str
    only: str
    says: str = ""
    examples: int = 0

    @property
    def name(self) -> str:
        return f"{self.path} -k {self.only!r}" if self.only else self.path

    @property
    def control(self) -> "Tests":
        return Tests(self.path, self.only, examples=CONTROL_EXAMPLES)

    def run(self, folder: Path, seconds: float) -> Result:
        options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "mutations.first_failure", "--tb=short", "--timeout=600"]
        command = [sys.executable, "-m", "pytest", *options, self.path, *(["-k", self.only] if self.only else [])]
        more = dict.fromkeys(("MODEL_EXAMPLES", "SIMULATION_SEEDS"), str(self.examples)) if self.examples else {}
        code = _run(command, folder, seconds, lambda: False, **more)
        text = (folder / _OUTPUT).read_text(errors="replace")
        match = re.search(self.says, text) if self.says and code == 1 else None
        return Result(code == 0, f"fails: {match[0]}" if match else "", _last_lines(folder))


def _run(command: list[str], folder: Path, seconds: float, is_enough: Callable[[], bool], **more: str) -> int:
    """Run a command until it ends, `is_enough` returns True, or the time has run out. Then stop the command. Return its
    exit code.
    """
    deadline = time.monotonic() + seconds
    with (folder / _OUTPUT).open("wb") as output:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment(folder) | more, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
        try:
            while not _has_ended(process) and time.monotonic() < deadline and not is_enough():
                pass
        finally:
            _end(process)
    return process.returncode


def _has_ended(process: "subprocess.Popen[bytes]") -> bool:
    try:
        process.wait(_LOOK_SECONDS)
    except subprocess.TimeoutExpired:
        return False
    return True


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Interrupt the process as Ctrl-C does, so that the soak or pytest ends the processes that it started."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(_LEAVE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _last_lines(folder: Path) -> str:
    return "\n".join((folder / _OUTPUT).read_text(errors="replace").splitlines()[-15:])
