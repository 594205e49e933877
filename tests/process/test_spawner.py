"""The spawner, which starts the master's children. It keeps one process ready for the next start."""

import os
import signal
from collections.abc import Iterator

import pytest

from rota_supervisor.child_start import SpawnedChild, Spawner
from rota_supervisor.layout import Role


@pytest.fixture
def spawner() -> Iterator[Spawner]:
    made = Spawner()
    yield made
    made.close()


def end_of(child: SpawnedChild) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1])


def test_a_child_started_in_advance_is_used_only_once(spawner: Spawner) -> None:
    spawner.prestart(Role.ZYGOTE)
    first, second = spawner.start(Role.ZYGOTE), spawner.start(Role.ZYGOTE)
    assert first.pid < second.pid
    for child in (first, second):
        child.channel.close()
        assert end_of(child) > 0, "it leaves when its channel closes"


def test_children_that_the_master_has_not_set_up_yet_die_with_it() -> None:
    spawner = Spawner()
    spawner.prestart(Role.ZYGOTE)
    children = [spawner.start(role) for role in (Role.ZYGOTE, Role.POLLER)]
    spawner.close()
    assert [end_of(child) for child in children] == [-signal.SIGKILL] * 2
    for child in children:
        child.channel.close()
