"""The cancellation of a running task. The task's worker is notified once, and is killed if the task continues for too
long.
"""

import asyncio
import signal
from collections.abc import Callable
from typing import Any, cast

import pytest

from rota.child.slot_memory import SlotMemory
from rota.child.slot_record import TaskInSlot, TaskTimes
from rota.child.slots import Phase, Slot
from rota.protocol.nodes import Announced
from rota.protocol.replies import CancelOrder, parse_cancel_order, parse_renewed
from rota.protocol.store import Store
from rota.server.aio_connection import AioConnection
from rota.server.server_errors import ServerError
from rota.telemetry import log_events
from rota_supervisor.config.model import Config
from rota_supervisor.layout import Role
from rota_supervisor.master.core.children import Child, ChildState
from rota_supervisor.master.core.effects import HeldLease, NotifyCancelled, Order, ReapOwner, RenewLeases, SignalChild
from rota_supervisor.master.core.master_events import (
    CancelOrdered,
    Died,
    Event,
    LeasesRenewed,
    ProcessEnd,
    SlotReading,
    SlotsRead,
    Ticked,
)
from rota_supervisor.master.core.plan import DUMP_SECONDS, next_plan_at
from rota_supervisor.master.core.reasons import Reason
from rota_supervisor.master.core.targets import Desired
from rota_supervisor.master.effects.background import Background
from rota_supervisor.master.effects.master_redis import RedisCalls, ScheduleDeclarer
from rota_supervisor.master.effects.task_watch import Orders, cancelled_in
from support.cores import Core

SLOT = 8
OWNER = "node:8:1"
ENTRY = b"id mail i 1 1 0 0 0 0 -"
FOREVER_NS = 10**15


@pytest.fixture
def core() -> Core:
    return Core(Config(imports=("code",), workers=1))


@pytest.fixture
def worker(core: Core) -> Child:
    child = core.child(Role.WORKER, SLOT)
    child.owner = OWNER
    child.pid = 77
    child.ready_at = 0.0
    child.has_stack = True
    return child


def _runs(core: Core, worker: Child, number: int) -> None:
    """Let the master read from the worker's slot that the worker runs the task with this number. Task numbers are odd,
    so an even number stands for a worker without a task.
    """
    tasks = (TaskTimes(1, FOREVER_NS, 0, number),) if number % 2 else ()
    core.take(SlotsRead((SlotReading(SLOT, worker.nonce, Phase.BUSY, tasks, round(core.now * 1e9)),)))


def _cancel(core: Core, worker: Child, number: int, kill_after: float | None = None) -> list[NotifyCancelled]:
    before = len(core.done(NotifyCancelled))
    core.take(CancelOrdered(SLOT, worker.nonce, 0, number, "id", kill_after))
    return core.done(NotifyCancelled)[before:]


def _orders_at(core: Core, now: float) -> list[Order]:
    core.now = now
    return [
        effect.order for effect in core.take(Ticked()) if isinstance(effect, SignalChild) and effect.child.slot == SLOT
    ]


def test_a_worker_is_notified_once_of_each_cancelled_task(core: Core, worker: Child) -> None:
    _runs(core, worker, 7)
    assert _cancel(core, worker, 7) == [NotifyCancelled(worker.ref, 0, 7)]
    assert _cancel(core, worker, 7) == []
    assert _cancel(core, worker, 9) == [NotifyCancelled(worker.ref, 0, 9)]
    assert [event for event, _ in core.logged] == [log_events.TASK_CANCEL_REQUESTED] * 2


@pytest.mark.parametrize("state", [ChildState.KILLED, ChildState.EXITED])
def test_ended_or_replaced_workers_are_not_notified_of_a_cancel(core: Core, worker: Child, state: ChildState) -> None:
    core.take(CancelOrdered(SLOT, worker.nonce + 1, 0, 7, "id"))
    worker.state = state
    assert _cancel(core, worker, 7) == []
    assert core.done(NotifyCancelled) == []


def test_a_worker_is_killed_if_its_cancelled_task_runs_on(core: Core, worker: Child) -> None:
    core.now = 10.0
    _runs(core, worker, 7)
    _cancel(core, worker, 7, kill_after=2.0)
    assert next_plan_at([worker], Desired((), boot_seconds=60, beat_seconds=30), 11.5) == 12.0
    assert _orders_at(core, 12.0) == []
    assert _orders_at(core, 12.1) == [Order.WRITE_STACK]
    assert _orders_at(core, 12.2 + DUMP_SECONDS) == [Order.KILL]
    assert worker.why is Reason.CANCELLED


def test_a_repeated_cancel_can_only_shorten_the_time_until_the_kill(core: Core, worker: Child) -> None:
    _runs(core, worker, 7)
    _cancel(core, worker, 7)
    assert _orders_at(core, 1000.0) == []
    _cancel(core, worker, 7, kill_after=1.0)
    _cancel(core, worker, 7)
    assert _orders_at(core, 1001.1) == [Order.WRITE_STACK]


def test_a_cancel_does_not_kill_the_next_task(core: Core, worker: Child) -> None:
    _runs(core, worker, 7)
    _cancel(core, worker, 7, kill_after=1.0)
    _runs(core, worker, 9)
    assert _orders_at(core, 5.0) == []
    _cancel(core, worker, 9)  # without `kill_after`, although the previous cancellation had one
    assert _orders_at(core, 10.0) == []


def test_a_worker_killed_after_a_cancel_counts_as_neither_crash_nor_failure(core: Core, worker: Child) -> None:
    _runs(core, worker, 7)
    _cancel(core, worker, 7, kill_after=0.5)
    worker.state = ChildState.KILLED
    worker.why = Reason.CANCELLED
    ran = TaskInSlot(ENTRY, "send", 1, FOREVER_NS, number=7)
    core.take(Died(SLOT, worker.nonce, ProcessEnd(signal.SIGKILL), (ran,)))
    [reap] = core.done(ReapOwner)
    assert reap.blame.crash is None
    [(name, fields)] = [(event, fields) for event, fields in core.logged if event == log_events.WORKER_KILLED]
    assert (name, fields["reason"], fields["limit"], fields["limit_value"]) == (
        log_events.WORKER_KILLED,
        "cancelled",
        "kill_after",
        0.5,
    )
    assert "the task was cancelled, but did not end in time" in fields["words"]
    assert core.state.backoffs == {}
    assert core.state.last_death is None


# Orders: from the node's list to the event for the core


def test_cancel_orders_are_parsed_and_invalid_ones_are_refused() -> None:
    assert parse_cancel_order(b"- id 1 node:8:1") == CancelOrder(OWNER, "id", 1, None)
    assert parse_cancel_order(b"1500 id 1 node:8:1") == CancelOrder(OWNER, "id", 1, 1.5)
    for raw in (b"", b"x", b"- id 1", b"x id 1 node:8:1", b"- id x node:8:1"):
        with pytest.raises(ValueError, match=r"unpack|invalid literal"):
            parse_cancel_order(raw)


class _Line:
    """The connection on which a master waits for orders. `orders` is the content of the node's list of orders. Once the
    list is empty, the connection waits forever.
    """

    def __init__(self, *orders: bytes) -> None:
        self.orders = list(orders)

    async def execute(self, name: str, *args: Any) -> Any:
        if name == "BLMOVE":
            return self.orders[0] if self.orders else await asyncio.Event().wait()
        assert name == "LREM"
        self.orders.remove(args[2])
        return 1


class _Place:
    """A node with one worker, the slot of the worker, and the events that the node's master receives."""

    def __init__(self, core: Core, worker: Child) -> None:
        self.memory = SlotMemory.create(SLOT + 1)
        self.slot: Slot = self.memory.slot(SLOT)
        self.slot.assign(worker.nonce)
        self.core = core
        self.told: list[Event] = []

    def listen(self, *orders: bytes, meanwhile: Any = lambda: None) -> list[Event]:
        """Let the master receive these orders, and return its events after at most a tenth of a second. `meanwhile` is
        called when all orders have been taken from the list.
        """
        line: Any = _Line(*orders)

        async def run() -> None:
            works = asyncio.Event()
            background = Background()
            works.set()
            listening = Orders(
                line, "orders", works, self.core.state.children, self.memory, background, self.told.append
            ).listen()
            background.start(listening)
            while line.orders:
                await asyncio.sleep(0)
            meanwhile()
            deadline = asyncio.get_running_loop().time() + 0.1
            while not self.told and asyncio.get_running_loop().time() < deadline:
                await asyncio.sleep(0.001)
            await background.cancel()

        asyncio.run(run())
        return self.told


@pytest.fixture
def place(core: Core, worker: Child) -> _Place:
    return _Place(core, worker)


def test_a_cancel_order_becomes_an_event_with_the_number_of_the_task(place: _Place, worker: Child) -> None:
    place.slot.record(0).start(ENTRY, "send", 1, FOREVER_NS)
    assert place.listen(b"garbage", b"2500 id 1 node:8:1") == [CancelOrdered(SLOT, worker.nonce, 0, 1, "id", 2.5)]


def test_a_cancel_order_waits_until_its_task_has_started(place: _Place, worker: Child) -> None:
    begin = lambda: place.slot.record(0).start(ENTRY, "send", 1, FOREVER_NS)  # noqa: E731 - one word
    assert place.listen(b"- id 1 node:8:1", meanwhile=begin) == [CancelOrdered(SLOT, worker.nonce, 0, 1, "id")]


@pytest.mark.parametrize("order", [b"- id 1 node:8:2", b"- id 1 node:9:3", b"- other 1 node:8:1", b"- id 0 node:8:1"])
def test_a_cancel_order_for_another_owner_or_task_is_ignored(place: _Place, order: bytes) -> None:
    place.slot.record(0).start(ENTRY, "send", 1, FOREVER_NS)
    assert place.listen(order) == []


def test_only_a_matching_running_task_is_found_for_a_cancel(place: _Place, worker: Child) -> None:
    def found(*ids: str) -> list[CancelOrdered]:
        return cancelled_in(worker, place.slot, lambda task: task.id in ids)

    assert found("id") == []
    place.slot.record(0).start(ENTRY, "send", 1, FOREVER_NS)
    assert found("other", "id") == [CancelOrdered(SLOT, worker.nonce, 0, 1, "id")]
    assert found("other") == []
    place.slot.record(0).end()
    assert found("id") == []


# Renewals: from the reply to the event for the core


class _Renewal:
    """The connection for renewals of leases. The first reply names a cancelled entry, and every later call fails. The
    function `meanwhile` is called before the first reply.
    """

    def __init__(self, cancelled: bytes, meanwhile: Callable[[], object]) -> None:
        self.replies = [parse_renewed([[], [cancelled]])]
        self.meanwhile = meanwhile

    async def run(self, _command: object) -> Any:
        if not self.replies:
            raise ServerError("gone")
        self.meanwhile()
        return self.replies.pop()


def _renewed(place: _Place, worker: Child, cancelled: bytes, meanwhile: Callable[[], object]) -> list[CancelOrdered]:
    """Return the events of a renewal whose reply names this entry as cancelled. The function `meanwhile` performs the
    worker's actions while the call is in progress.
    """

    async def run() -> None:
        connection = cast("AioConnection", _Renewal(cancelled, meanwhile))
        nobody = cast("ScheduleDeclarer", None)
        background = Background()
        calls = RedisCalls(connection, Store("n"), "node", place.memory, background, nobody, place.told.append)
        held = (HeldLease(OWNER, 20.0, SLOT, worker.nonce),)
        calls.handlers[RenewLeases](RenewLeases(held, (), {}, 20.0, Announced(), {}))
        while not any(isinstance(each, LeasesRenewed) for each in place.told):
            await asyncio.sleep(0)
        await background.cancel()

    asyncio.run(run())
    return [each for each in place.told if isinstance(each, CancelOrdered)]


def test_a_lease_renewal_that_returns_a_cancelled_task_cancels_it(place: _Place, worker: Child) -> None:
    place.slot.record(0).start(ENTRY, "send", 1, FOREVER_NS)
    assert _renewed(place, worker, ENTRY, lambda: None) == [CancelOrdered(SLOT, worker.nonce, 0, 1, "id")]


def test_a_lease_renewal_does_not_cancel_a_later_task_with_the_same_id(place: _Place, worker: Child) -> None:
    record = place.slot.record(0)
    record.start(ENTRY, "send", 1, FOREVER_NS)

    def another_begins() -> None:
        record.end()
        record.start(b"id mail i 2 2 0 0 0 0 -", "send", 2, FOREVER_NS)

    assert _renewed(place, worker, ENTRY, another_begins) == []
