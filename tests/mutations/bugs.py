"""The bugs in Python. Each bug is called in place of a function of the product, and receives that function as
`original`. A bug calls `original` for everything that it does not change, so it seldom has to be adapted to changes of
the product. The processes of a fleet with a bug import this module, so expensive imports are inside the functions.
"""

import dataclasses
import os
import time
from collections.abc import Awaitable, Callable, Collection, Generator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from rota.protocol.scripts import Script, ScriptCall, sha1_of
from rota.protocol.store import Blame, Store
from rota.protocol.tiers import NO_TIERS
from rota.protocol.turns import Turn, TurnReply
from rota.protocol.wire import NOTHING, Packed
from rota.server.server_errors import ConnectionLost, Refused

if TYPE_CHECKING:
    from rota.child.child_process import Fence
    from rota.client.sender import Batch, Nonce, Sender
    from rota.poller.rounds import LegacyAdoption
    from rota.protocol.entry import Entry
    from rota.protocol.schedule_store import DeclaredSchedule
    from rota.server.connection import Connection
    from rota.tasks.claimed_call import StartSteps
    from rota.telemetry.metrics import QueueLabels
    from rota_supervisor.config.model import Config
    from rota_supervisor.master.core.death import Death
    from rota_supervisor.master.core.effects import Effect
    from rota_supervisor.master.core.generations import Change
    from rota_supervisor.master.core.master_events import Died
    from rota_supervisor.master.core.plan import Action
    from rota_supervisor.master.core.scaling_rule import PoolScaling
    from rota_supervisor.master.core.state import MasterState
    from rota_supervisor.master.effects.master_redis import ScheduleDeclarer


def query_again(original: Callable[..., Any], self: "Connection", data: bytes) -> Any:
    """Let a connection send a command again if no reply came in time."""
    try:
        return original(self, data)
    except ConnectionLost:
        return original(self, data)


def turn_without_allow_oom(original: Callable[[str], Script], name: str) -> Script:
    """Leave out the flag `allow-oom` of the script `turn`, so that a full server refuses the script."""
    script = original(name)
    if name != "turn":
        return script
    text = script.text.replace(b"#!lua flags=allow-oom\n", b"#!lua\n", 1)
    return Script(name, text, sha1_of(text).encode())


def turn_without_tokens(
    original: Callable[..., Any], self: Store, owner: str, tiers: Packed, turn: Turn
) -> ScriptCall[TurnReply]:
    """Do not pass on a token that a worker took from a doorbell."""
    answer: ScriptCall[TurnReply] = original(self, owner, tiers, replace(turn, tokens=()))
    return answer


def reap_workers_asked_to_leave(
    original: "Callable[..., list[Effect]]", state: "MasterState", action: "Action", now: float
) -> "list[Effect]":
    """Reap a worker's owner when the worker is ordered to exit, although the worker is still running its task."""
    from rota_supervisor.master.core.effects import Order, ReapOwner  # noqa: PLC0415 - workers import this module too
    from rota_supervisor.master.core.plan import Signal  # noqa: PLC0415 - as above

    effects = original(state, action, now)
    is_requested = isinstance(action, Signal) and action.order is Order.LEAVE
    if is_requested and (owner := state.children.in_slot(action.slot).owner):
        blame = Blame((), crash_limit=3, loss_limit=5)
        effects.append(ReapOwner(action.slot, -1, owner, {}, blame, NOTHING, NO_TIERS))
    return effects


def never_freeze(_original: Callable[..., Any], _history: "PoolScaling", _situation: object) -> list[str]:
    """Ignore all situations in which more workers would not help."""
    return []


def never_up(_original: Callable[..., bool], _self: "Fence", _at_ns: int) -> bool:
    """Never let a worker's fence prevent the start of a task."""
    return False


def send_again_under_another_nonce(
    original: Callable[..., Any], self: "Sender[Any, Any, Any]", batches: "Sequence[Batch[Any]]", deadline: float
) -> Any:
    """Repeat a call that received no reply under a new nonce, so that the server cannot recognize the repetition."""
    return original(self, [batch._replace(nonce=cast("Nonce", os.urandom(16).hex())) for batch in batches], deadline)


def died_without_outcomes(
    original: "Callable[..., list[Effect]]", state: "MasterState", event: "Died", now: float
) -> "list[Effect]":
    """Do not read the outcomes of a dead worker from its slot."""
    return original(state, event._replace(outcomes=NOTHING), now)


def begin_without_an_answer(
    original: Callable[..., Any], self: "StartSteps", entry: "Entry"
) -> "Generator[Any, Any, Entry]":
    """Start a task that may be started at most once even if Redis refused the start or did not reply."""
    return (yield from original(self, entry)) or entry


def own_label(_: Callable[..., Any], __: "QueueLabels", queue: str) -> str:
    """Give each queue of a pattern its own time series."""
    return queue


def no_verdicts(_: Callable[..., Any], __: "Death") -> tuple[()]:
    """Ignore the kill policy that the worker wrote to its slot."""
    return ()


def charge_all(_: Callable[..., Any], death: "Death") -> tuple[tuple[str, bytes], ...]:
    """Count the kill of a worker as a crash for all its running tasks, even if one of them is known to be the cause."""
    from rota_supervisor.master.core.death import death_record_of  # noqa: PLC0415 - workers import this module too

    return tuple((task.id, death_record_of(death, task)) for task in death.event.tasks)


def adopt_in_two_steps(
    original: Callable[..., None], self: "LegacyAdoption", connection: "Connection", now: float
) -> None:
    """Remove an item from its list in one step, and make it a task in a second step."""
    for source in self._sources:
        with suppress(Refused):  # raised if the source is a sorted set
            item = connection.execute("LPOP", source.key)
            time.sleep(0.02)
            if item is not None:
                connection.execute("LPUSH", source.key, item)
    original(self, connection, now)


def overlook_conditions(
    original: "Callable[..., Change]", old: "Config", new: "Config", *, fresh: bool = False
) -> "Change":
    """Do not update workers if only the conditions of queues have changed."""
    from msgspec.structs import replace as replaced  # noqa: PLC0415 - as above

    def without(config: "Config") -> "Config":
        queues = {name: replaced(queue, condition="") for name, queue in config.queues.items()}
        return replaced(config, queues=queues)

    return original(without(old), without(new), fresh=fresh)


def withdraw_as_if_alone(
    original: "Callable[..., Awaitable[None]]",
    self: "ScheduleDeclarer",
    schedules: "Collection[DeclaredSchedule]",
    *,
    is_only_node: bool,  # noqa: ARG001 - the signature is the product's
) -> "Awaitable[None]":
    """Remove a schedule that this node no longer declares, even if other nodes declare it."""
    return original(self, schedules, is_only_node=True)


def declare_what_was_first(original: Callable[..., bool], state: "MasterState", now: float) -> bool:
    """Never declare the schedules of later generations."""
    return state.declarations.generation is None and original(state, now)


def share_what_changes(original: Callable[..., "MasterState"], state: "MasterState") -> "MasterState":
    """Copy the state in such a way that the copy shares the records of children, leases and back-offs."""
    del original
    return dataclasses.replace(state)
