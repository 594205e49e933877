"""The previous version of Rota, unpacked from the repository so that nodes of both versions can run together."""

import compileall
import io
import subprocess
import tarfile
from pathlib import Path
from typing import Final

from support.prose import ROOT

# The commit to use while there is no release. It is the last commit before the newest change to the protocol between
# nodes. Since that change, heartbeats name the kinds of entries that their node knows, and no script writes a kind that
# is missing from the heartbeat of a live node. Replace this commit when the protocol changes (docs/releasing.md).
BEFORE_CHANGE: Final = "394505260c6837f5f0448d96bb1c3dbea3f09ba8"
_PACKAGES: Final = ("workers", "supervisor")


class NoEarlierVersion(Exception):
    """Raised if the repository does not have the earlier commit. The message says what to do."""


def earlier_commit() -> str:
    """Return the newest release before this commit, or `BEFORE_CHANGE` if there is no release. Raises
    `NoEarlierVersion`.
    """
    wanted = _git("describe", "--tags", "--abbrev=0", "--match", "v*", "HEAD^") or BEFORE_CHANGE
    commit = _git("rev-parse", "--verify", "--quiet", f"{wanted}^{{commit}}")
    if not commit:
        raise NoEarlierVersion(f"{wanted} is not here: run this in a clone with the whole history")
    return commit


def _git(*words: str) -> str:
    """Return the output of a git command, or "" if the command fails. The repository may belong to another user."""
    return _run_git(*words).decode().strip()


def _run_git(*words: str) -> bytes:
    command = ["git", "-c", f"safe.directory={ROOT}", *words]
    try:
        return subprocess.run(command, cwd=ROOT, capture_output=True, check=False).stdout
    except FileNotFoundError:
        return b""


def unpack_earlier_version(folder: Path) -> tuple[Path, ...]:
    """Unpack the earlier version into an empty folder. Return its source roots, for PYTHONPATH. Raises
    `NoEarlierVersion`."""
    with tarfile.open(fileobj=io.BytesIO(_run_git("archive", earlier_commit(), *_PACKAGES))) as archive:
        archive.extractall(folder, filter="data")
    roots = tuple(folder / package for package in _PACKAGES)
    for root in roots:
        compileall.compile_dir(root, quiet=1)
    return roots
