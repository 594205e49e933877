"""Control groups for tests that need resource limits. They use version 1 or 2, whichever this machine permits."""

import contextlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from support.waiting import until

_ROOT: Final = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Group:
    """A child of this process's control group, with one controller. If `is_v2` is set, the group uses version 2 of
    control groups, whose files have other names than those of version 1.
    """

    folder: Path
    is_v2: bool

    def set(self, name: str, value: int | str) -> None:
        """Write a value to a file of the group."""
        (self.folder / name).write_text(str(value))

    def take(self, pids: Iterable[int]) -> None:
        """Move processes into the group. Processes that they start later are in the group too."""
        for pid in pids:
            self.set("cgroup.procs", pid)


@contextlib.contextmanager
def group(controller: str) -> Iterator[Group]:
    """Create a group for a block of code, or skip the test if that is impossible. At the end, move the remaining
    processes back and remove the group.
    """
    parent, is_v2 = _parent(controller)
    folder = parent / f"rota-test-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    try:
        yield Group(folder, is_v2)
    finally:
        until(lambda: _is_gone(folder, parent), "the group is gone")


def _is_gone(folder: Path, parent: Path) -> bool:
    """Move all processes out and remove the group. Return False if a process was forked into the group in the
    meantime.
    """
    for pid in (folder / "cgroup.procs").read_text().split():
        with contextlib.suppress(OSError):  # the process has ended
            (parent / "cgroup.procs").write_text(pid)
    try:
        folder.rmdir()
    except OSError:
        return False
    return True


def _parent(controller: str) -> tuple[Path, bool]:
    """Return the folder of this process's group for the controller, and whether the group uses version 2."""
    own = dict(line.split(":", 2)[1:] for line in Path("/proc/self/cgroup").read_text().splitlines())
    for names, path in own.items():
        if controller in names.split(","):
            return _ROOT / controller / path.lstrip("/"), False
    folder = _ROOT / own.get("", "/").lstrip("/")
    enabled = folder / "cgroup.subtree_control"
    if not enabled.exists() or controller not in enabled.read_text().split():
        pytest.skip(f"no control group with the controller {controller} can be made here")
    return folder, True
