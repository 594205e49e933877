"""Fixtures of process tests: a master, and workers and pollers without one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.child_harness import ChildHarness
from support.masters import Mastered
from support.servers import Server


@pytest.fixture
def fleet(server: Server, namespace: str, tmp_path: Path) -> Iterator[Mastered]:
    """Yield a master that is not started yet, with two workers unless its file has another number."""
    made = Mastered(server, namespace, tmp_path)
    yield made
    made.close()


@pytest.fixture
def harness(server: Server, namespace: str, tmp_path: Path) -> Iterator[ChildHarness]:
    """Yield a starter of workers and pollers."""
    made = ChildHarness(server, namespace, tmp_path)
    yield made
    made.close()
