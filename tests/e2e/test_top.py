"""`rota top` on a busy fleet: what it shows, the selection of rows, the details and actions, and the state of the
terminal after it exits.
"""

import asyncio
import json
import os
import re
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from itertools import chain, repeat
from pathlib import Path

import pytest
from textual.pilot import Pilot

from rota import Call
from rota.protocol.task_states import State
from rota_supervisor.cli.node_verbs import status_of
from rota_supervisor.node_http import node_at
from rota_supervisor.top.top_app import Top
from support.fleet_process import ROTA, environment
from support.fleets import RunningFleet, running_fleet
from support.masters import ON_ONE_SERVER
from support.servers import Server
from support.terminals import in_terminal
from support.waiting import DEADLINE_SECONDS, until

pytestmark = ON_ONE_SERVER

SIZES = [(60, 15), (80, 24), (200, 60)]
At = Pilot[None]


@pytest.fixture(scope="module")
def fleet(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningFleet]:
    """Yield a fleet with two workers. One worker runs a task that does not end. Another task is dead, and a third one
    waits in a paused queue.
    """
    folder: Path = tmp_path_factory.mktemp("top")
    tiers = [["mail"], ["default", "slow"]]
    with running_fleet(server.url, f"top-{folder.name}", folder, workers=2, tiers=tiers) as running:
        running.client.enqueue("judge", args=[1], queue="mail")
        running.client.pause("slow")
        running.client.enqueue("note", args=["later"], queue="slow")
        running.hold("held")
        until(lambda: running.client.peek("mail", State.DEAD), "a dead task")
        yield running
        running.release("held")


def with_top(fleet: RunningFleet, size: tuple[int, int], act: Callable[[At], Awaitable[None]]) -> None:
    """Run `rota top` for this fleet in a terminal of this size, while `act` uses it like an operator."""

    async def run() -> None:
        view = Top(partial(status_of, node_at(fleet.target())), fleet.client)
        async with view.run_test(size=size, notifications=True) as pilot:
            await shown(pilot, fleet.namespace)
            await act(pilot)

    asyncio.run(run())


def screen(pilot: At) -> list[str]:
    """Return the lines on the screen."""
    strips = pilot.app.screen._compositor.render_strips()
    return ["".join(segment.text for segment in strip) for strip in strips]


async def shown(pilot: At, *texts: str) -> None:
    """Wait until all of these texts are on the screen."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while missing := [text for text in texts if text not in "\n".join(screen(pilot))]:
        assert time.monotonic() < deadline, f"{missing} not in\n" + "\n".join(screen(pilot))
        await pilot.pause(0.02)


# The screen of `rota top`


@pytest.mark.parametrize("size", SIZES)
def test_rota_top_shows_headlines_queues_and_keys_at_every_terminal_size(
    fleet: RunningFleet, size: tuple[int, int]
) -> None:
    async def act(pilot: At) -> None:
        await shown(pilot, "queue slow has been paused", "QUEUE", "P99", "paused", "quit")
        lines = screen(pilot)
        assert len(lines) == size[1]
        assert {len(line) for line in lines} == {size[0]}

    with_top(fleet, size, act)


def test_rota_top_shows_every_table_at_once_in_a_large_terminal(fleet: RunningFleet) -> None:
    async def act(pilot: At) -> None:
        await shown(pilot, "queues 3", "workers", "pools 1", "nodes 1", "events", "hold", "the fleet is ready")

    with_top(fleet, (200, 60), act)


def test_keys_of_rota_top_select_filter_and_sort_tables(fleet: RunningFleet) -> None:
    async def act(pilot: At) -> None:
        await pilot.press("slash", *"slow", "enter")
        await shown(pilot, "queues 1 of 3")
        assert not any("mail" in line for line in screen(pilot)[3:])
        await pilot.press("escape")
        await shown(pilot, "queues 3")
        # The column disappears when the rates are known, because the rates need the column's space.
        if "TIER" in "\n".join(screen(pilot)):
            await pilot.press("s")
            await shown(pilot, "TIER▲")
        await pilot.press("s", "r")
        await shown(pilot, "QUEUE▼")
        queues = ("mail", "default", "slow")
        names = [word for line in screen(pilot) for word in line.split()[:2] if word in queues]
        assert names == ["slow", "mail", "default"]
        await pilot.press("tab")
        await shown(pilot, "PROCESS")
        await pilot.press("5")
        await shown(pilot, "the fleet is ready")

    with_top(fleet, (60, 15), act)


def test_enter_opens_the_tasks_of_a_queue_and_the_death_record(fleet: RunningFleet) -> None:
    async def act(pilot: At) -> None:
        await pilot.press("enter")  # opens the first row, which is the queue `mail`
        await shown(pilot, "queue mail", "judge", "dead")
        await pilot.press("enter")
        await shown(pilot, "retries", "ArithmeticError: 1 is odd")
        await pilot.press("escape", "escape")
        await shown(pilot, "queues 3")

    with_top(fleet, (80, 24), act)


def test_enter_on_a_worker_shows_commands_for_task_and_stack(fleet: RunningFleet) -> None:
    async def act(pilot: At) -> None:
        await pilot.press("2", "slash", *"hold", "enter", "enter")
        await shown(pilot, "worker", "rota task show", "kill -USR1")

    with_top(fleet, (80, 24), act)


def test_rota_top_pauses_a_queue_only_after_a_confirmation(fleet: RunningFleet) -> None:
    def is_paused() -> bool:
        return next(row for row in fleet.client.queues() if row.queue == "mail").paused

    async def act(pilot: At) -> None:
        await pilot.press("p")
        await shown(pilot, "Pause queue mail?")
        await pilot.press("n")
        await shown(pilot, "queues 3")
        assert not await asyncio.to_thread(is_paused)
        await pilot.press("p")
        await shown(pilot, "Pause queue mail?")
        await pilot.press("y")
        await shown(pilot, "paused mail")
        assert await asyncio.to_thread(is_paused)
        await shown(pilot, "queue mail has been paused")
        await pilot.press("p")
        await shown(pilot, "Resume queue mail?")
        await pilot.press("y")
        await shown(pilot, "resumed mail")
        assert not await asyncio.to_thread(is_paused)

    with_top(fleet, (80, 24), act)


def test_rota_top_revives_dead_tasks_after_a_confirmation(fleet: RunningFleet) -> None:
    handle = fleet.client.enqueue("judge", args=[3], queue="default")
    read = partial(status_of, node_at(fleet.target()))
    until(lambda: next(row for row in read()["queues"] if row["name"] == "default")["state"]["dead"], "its death")

    async def act(pilot: At) -> None:
        await pilot.press("down", "v")
        await shown(pilot, "Revive the dead tasks of queue default?")
        await pilot.press("y")
        await shown(pilot, "revived 1 of 1 task")

    fleet.client.pause("default")  # so that no worker claims the revived task
    with_top(fleet, (200, 60), act)
    assert handle.status().state == "ready"
    fleet.client.resume("default")


def test_an_unreachable_node_is_reported_and_the_last_values_stay(fleet: RunningFleet) -> None:
    node = node_at(fleet.target())
    reads = chain([partial(status_of, node)], repeat(partial(status_of, node._replace(port=1))))
    view = Top(lambda: next(reads)(), fleet.client)  # noqa: PLW0108 - the next one at each refresh

    async def run() -> None:
        async with view.run_test(size=(80, 24)) as pilot:
            await shown(pilot, "queues 3", "no server responds at http://127.0.0.1:1/status.json")

    asyncio.run(run())


def test_the_usual_run_time_of_a_new_task_is_that_of_its_queue(fleet: RunningFleet) -> None:
    fleet.client.enqueue_many([Call("note", args=["short"], queue="default")] * 10)
    read = partial(status_of, node_at(fleet.target()))

    def usual() -> list[float]:
        tasks = [task for process in read()["processes"] for task in process["tasks"] if task["task"]["name"] == "hold"]
        return [task["usual_seconds"] for task in tasks if task["usual_seconds"] is not None]

    until(usual, "the run is known")
    assert max(usual()) < 10


# `rota top` in a real terminal


@pytest.mark.parametrize("ending", ["q", "ctrl-c", "TERM"])
def test_top_restores_the_terminal(fleet: RunningFleet, ending: str) -> None:
    with in_terminal([ROTA, "top"], fleet.folder, environment(fleet.folder)) as terminal:
        terminal.wait_for("queues 3")
        assert not terminal.is_as_before()
        if ending == "TERM":
            terminal.signal(signal.SIGTERM)
        else:
            terminal.type(b"q" if ending == "q" else b"\x03")
        assert terminal.exit_code() == 0
        assert terminal.is_as_before()


def test_top_restores_the_terminal_after_a_crash(fleet: RunningFleet) -> None:
    program = (
        "import rota; from rota_supervisor.top.top_app import Top; Top(lambda: {1: 1}, rota.Client('redis://x')).run()"
    )
    with in_terminal([sys.executable, "-c", program], fleet.folder, dict(os.environ)) as terminal:
        terminal.wait_for("KeyError")
        terminal.exit_code()
        assert terminal.is_as_before()


def test_no_color_leaves_out_colors(fleet: RunningFleet) -> None:
    with in_terminal([ROTA, "top", "--no-color"], fleet.folder, environment(fleet.folder)) as terminal:
        terminal.wait_for("paused")
        terminal.type(b"q")
        terminal.exit_code()
        codes = {code for found in re.findall(rb"\x1b\[([0-9;]*)m", terminal.drawn) for code in found.split(b";")}
        assert not codes & {b"%d" % code for code in (*range(30, 39), *range(40, 49), *range(90, 108))}


# `rota top --once`


def test_rota_top_once_writes_plain_text_or_the_status_as_json(fleet: RunningFleet) -> None:
    text = fleet.rota("top", "--once")
    assert (text.returncode, "\x1b" in text.stdout) == (0, False), text.stderr
    for word in (fleet.namespace, "queue slow has been paused", "mail", "hold", "OBJECTIVE", "the fleet is ready"):
        assert word in text.stdout
    assert fleet.rota_json("top").keys() == json.loads(fleet.get("/status.json")[1]).keys()
    elsewhere = fleet.rota("top", "--once", "--url", node_at(fleet.target()).url, "--config", "none.toml")
    assert fleet.namespace in elsewhere.stdout


def test_the_output_of_rota_top_once_fits_the_terminal_width(fleet: RunningFleet) -> None:
    with in_terminal([ROTA, "top", "--once"], fleet.folder, environment(fleet.folder), (70, 24)) as terminal:
        assert terminal.exit_code() == 0
        lines = terminal.drawn.decode().splitlines()
        assert max(map(len, lines)) <= 70
        assert any("slow" in line and "paused" in line for line in lines)
