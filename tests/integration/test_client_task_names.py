"""Enqueues of tasks that this process does not declare. The client compares their names with those that running fleets
declare.
"""

import asyncio
import importlib
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import rota
from rota.client.blocking.client import Client
from rota.protocol.nodes import MOST_TASKS, heartbeat_of
from rota.tasks.registry import default_registry
from support.protocol import Fleet
from support.servers import Server


def fleet_with(fleet: Fleet, *names: str, node: str = "node") -> None:
    fleet.run(fleet.store.announce(node, heartbeat_of(1, {}, tasks=names), 60_000, ["default"]))


@contextmanager
def recorded_warnings() -> Iterator[list[str]]:
    """Record the warnings that are issued during the block. Yields the list of recorded warnings: the category and text
    of each.
    """
    told: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield told
    told += [f"{each.category.__name__}: {each.message}" for each in caught]
    assert {each.filename for each in caught} <= {__file__}, "it names a line outside of the application"


def test_an_undeclared_task_name_warns_once(client: Client, fleet: Fleet) -> None:
    fleet_with(fleet, "resize", "charge")
    with recorded_warnings() as told:
        for name in ("resize", "resiz", "resiz", "wholly-other"):
            client.enqueue(name, queue="default")
        client.enqueue_many([rota.Call("charg", queue="default")])
        client.enqueue(rota.chain(rota.Call("one", queue="default"), rota.Call("resize", queue="default")))
    assert [each.partition(":")[0] for each in told] == ["UnknownTask"] * 4
    assert (
        "no running fleet has a task named 'resiz', did you mean 'resize'? tasks with this name become dead" in told[0]
    )
    assert "named 'wholly-other': tasks with this name" in told[1]
    assert "named 'charg', did" in told[2]
    assert "named 'one':" in told[3]
    assert len(fleet.lane("default")) == 6, "a warning refuses nothing"


def test_an_undeclared_task_name_warns_on_asyncio(server: Server, namespace: str, fleet: Fleet) -> None:
    fleet_with(fleet, "resize")

    async def program() -> None:
        async with rota.AsyncClient(server.url, namespace) as client:
            await client.enqueue("resiz", queue="default")
            await client.enqueue("resize", queue="default")

    with recorded_warnings() as told:
        asyncio.run(program())
    assert ["UnknownTask" in each for each in told] == [True]


def test_an_unknown_task_name_does_not_warn_if_not_all_known_tasks_are_listed(
    client: Client, server: Server, namespace: str, fleet: Fleet
) -> None:
    with recorded_warnings() as told:
        client.enqueue("before-any-fleet", queue="default")
        fleet_with(fleet, "resize")
        fleet_with(fleet, *map(str, range(MOST_TASKS + 1)), node="large")
        client.enqueue("among-too-many", queue="default")
        fleet_with(fleet, "resize", node="large")
        with Client(server.url, namespace).consumer("default"):
            client.enqueue("for-a-consumer", queue="default")
    assert told == []


def test_a_task_of_the_main_module_warns_unless_the_fleet_declares_it(
    client: Client, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    def resize() -> None: ...

    def hello() -> None: ...

    monkeypatch.setattr(default_registry, "_tasks", {})
    for function in (resize, hello):
        function.__module__ = "__main__"
        rota.task(name=function.__name__)(function)
    fleet_with(fleet, "resize")
    with recorded_warnings() as told:
        client.enqueue(rota.Call("resize"))
        client.enqueue(rota.Call("hello"))
    assert ["named 'hello'" in each for each in told] == [True]


def test_a_reloaded_module_can_declare_its_tasks_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(default_registry, "_tasks", {})
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    module = tmp_path / "reloaded_tasks.py"
    module.write_text("import rota\n\n@rota.task\ndef resize(): return 1\n")
    imported = importlib.import_module("reloaded_tasks")
    module.write_text("import rota\n\n\n\n@rota.task\ndef resize(): return 'second'\n")
    importlib.reload(imported)
    assert imported.resize() == "second"
    module.write_text("import rota\n\n@rota.task\ndef one(): ...\n\n@rota.task\ndef one(): ... # again\n")
    with pytest.raises(rota.DuplicateTask, match=r"reloaded_tasks.py:3\) and .*reloaded_tasks.py:6\)"):
        importlib.reload(imported)
