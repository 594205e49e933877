"""The output of the master: its log, its metrics, the snapshot for the exporter, and reports about the fleet.

Everything that Python and its libraries would write directly to standard error becomes an event of the log, for two
reasons. First, such text would not have the format of a log line. Second, if no process reads standard error, the write
would block forever, whereas the log drops lines that it cannot write. Only faulthandler still writes to standard error:
the stack after a fatal error.
"""

import asyncio
import logging
import math
import os
import sys
import threading
import time
import warnings
from operator import attrgetter
from types import TracebackType
from typing import Any, Final

from rota.child.child_process import boottime_seconds
from rota.child.slot_memory import SharedText, SlotMemory
from rota.child.slot_record import TaskInSlot
from rota.child.slots import MASTER_SLOT, Phase, boottime_ns
from rota.telemetry import log, log_events
from rota.telemetry import metrics as m
from rota.telemetry.recorder import Recorder
from rota_supervisor.config.model import Config
from rota_supervisor.config.resolution import log_settings
from rota_supervisor.control.port import ControlReply
from rota_supervisor.fleet_snapshot import Member, Moment, member_in
from rota_supervisor.layout import Role
from rota_supervisor.master.core import effects as do
from rota_supervisor.master.core.children import AT_WORK, Child, ChildState
from rota_supervisor.master.core.death import shortened
from rota_supervisor.master.core.fleet_status import master_snapshot_of, status
from rota_supervisor.master.core.state import MasterState
from rota_supervisor.master.effects.background import Background
from rota_supervisor.master.effects.processes import Stacks
from rota_supervisor.process import started_at

STACK_SECONDS: Final = 0.2  # writing a stack takes 1 ms, but longer if hundreds of children write at the same time
_STACK_CHARACTERS: Final = 3000  # a log line has at most 4,096 bytes
_LINE_SECONDS: Final = 0.002
_DYING_SECONDS: Final = 1.0


def write_log(effect: do.WriteLog) -> None:
    """Write one event to the log."""
    getattr(log.logger(), effect.level)(effect.event, **effect.fields)


def configure_log(config: Config, node: str) -> None:
    """Configure the log of the master's process."""
    log.configure(log_settings(config), **log.of_process(Role.MASTER.value, config.namespace, node))


def change_log(config: Config, node: str) -> None:
    """Configure the log again while the fleet runs. If the new format needs a library that cannot be loaded, keep the
    old format."""
    try:
        configure_log(config, node)
    except (OSError, ImportError) as error:
        log.logger().error(log_events.CONFIG_WARNING, path="log.format", warning=f"it stays as it was: {error}")


def log_everything() -> None:
    """Send all errors and warnings of this process to the log from now on."""
    sys.excepthook = _end
    sys.unraisablehook = _log_unraisable
    threading.excepthook = _log_thread_failure
    warnings.showwarning = _log_warning
    logging.raiseExceptions = False
    logging.getLogger().addHandler(_Records())


def log_loop_errors(loop: asyncio.AbstractEventLoop) -> None:
    """Log the errors of an event loop: errors in callbacks, and errors in asyncio tasks that no caller awaits."""
    loop.set_exception_handler(lambda _, context: _log_error("asyncio", context["message"], context.get("exception")))


class _Records(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        try:
            message = record.getMessage()
        except (TypeError, ValueError):  # The arguments do not match the format string of the message.
            message = str(record.msg)
        if record.levelno >= logging.WARNING:
            _log_error(record.name, message, record.exc_info[1] if record.exc_info else None)


def _log_error(source: str, error: str, exception: BaseException | None) -> None:
    more: dict[str, Any] = {} if exception is None else {"exc_info": exception}
    log.logger().error(log_events.FLEET_CALL_FAILED, source=source, error=error, **more)


def _log_unraisable(found: "sys.UnraisableHookArgs") -> None:
    _log_error("python", f"{found.err_msg or 'exception ignored in'}: {found.object!r}", found.exc_value)


def _log_thread_failure(found: threading.ExceptHookArgs) -> None:
    name = found.thread.name if found.thread else "unknown"
    _log_error("threading", f"the thread {name} has ended with an exception", found.exc_value)


def _log_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: Any, **__: Any
) -> None:
    error = f"{filename}:{lineno}: {category.__name__}: {message}"
    log.logger().warning(log_events.FLEET_CALL_FAILED, source="warnings", error=error)


def _end(_kind: type[BaseException], error: BaseException, _traceback: TracebackType | None) -> None:
    log.logger().critical(
        log_events.FLEET_FAILED, error=f"{type(error).__name__}: {error}", exit_code=1, exc_info=error
    )


# Metrics and the snapshot


class Display:
    """The metrics of the master, and the snapshot that it publishes for the exporter."""

    def __init__(self, state: MasterState, memory: SlotMemory) -> None:
        own = memory.slot(MASTER_SLOT)
        self._recorder = Recorder(own.metrics, label_of_queue=state.label_of_queue)
        self._state = state
        self._snapshot_area = SharedText(own.far_spare)

    def set_all_gauges(self) -> None:
        """Set every gauge once, so that all gauges are exported from the start."""
        for gauge, value in (
            (m.CONFIG_LAST_RELOAD_SUCCESSFUL, 1),
            (m.CONFIG_LAST_RELOAD_SUCCESS_TIMESTAMP, time.time()),
            (m.START_TIME, started_at(os.getpid())),
            (m.REDIS_UP, 0),
            (m.REDIS_ROUND_TRIP, math.nan),
            (m.REDIS_EVICTS_KEYS, 0),
        ):
            self._recorder.gauge(gauge).set(value)

    def add(self, effect: do.AddToCounter) -> None:
        """Add to a counter. The exporter shows a counter as 0 until something is added (`exporter.series.zeroes`)."""
        self._recorder.counter(effect.counter, *effect.labels).add(effect.amount)

    def set(self, effect: do.SetGauge) -> None:
        """Set a gauge. A value of None means that the value is unknown."""
        value = math.nan if effect.value is None else effect.value
        self._recorder.gauge(effect.gauge, *effect.labels).set(value)

    def set_to_now(self, effect: do.SetGaugeToNow) -> None:
        """Set a gauge to the current wall-clock time."""
        self._recorder.gauge(effect.gauge).set(time.time())

    def publish(self, _effect: do.PublishSnapshot) -> None:
        """Publish the snapshot for the exporter."""
        self._snapshot_area.publish(master_snapshot_of(self._state).to_json(self._snapshot_area.capacity))


# The status of the fleet, and the stacks of its children


def current_status(state: MasterState, memory: SlotMemory) -> ControlReply:
    """Return the current status of the fleet, based on the master's state and the slots."""
    return status(state, _members(state, memory), Moment(boottime_seconds(), time.time()))


def _members(state: MasterState, memory: SlotMemory) -> list[Member]:
    """Return the processes of this node, including the master, with the details from their slots."""
    own = Member(MASTER_SLOT, Role.MASTER, state.surroundings.pid, state.phase, 0.0)
    now_ns = boottime_ns()
    living = (child for child in state.children if child.pid and child.state is not ChildState.EXITED)
    return [own, *(_member(child, memory, now_ns) for child in living)]


def _member(child: Child, memory: SlotMemory, now_ns: int) -> Member:
    seen = member_in(child.slot, memory.slot(child.slot), now_ns)
    is_there = seen.pid == child.pid  # if false, the process has not written its pid into the slot yet
    return seen if is_there else Member(child.slot, child.role, child.pid, Phase.BOOTING, 0.0)


class StackReport:
    """A writer of status reports, which contain the stacks of all children. It writes one report at a time.

    Reports are written in the background. The children get STACK_SECONDS to write their stacks. The lines are not
    logged all at once, because a pipe holds only 64 KB.
    """

    def __init__(self, state: MasterState, memory: SlotMemory, stacks: Stacks, background: Background) -> None:
        self._state = state
        self._memory = memory
        self._stacks = stacks
        self._background = background
        self._is_writing = False

    def start(self, _effect: do.WriteReport) -> None:
        """Write a report, unless one is being written."""
        if not self._is_writing:
            self._is_writing = True
            self._background.start(self._write())

    def blocked(self, effect: do.ReportBlocked) -> None:
        """Log the stack of a worker whose event loop is blocked, and the task that blocks the loop."""
        slot = self._memory.slot(effect.child.slot)
        task_index = slot.stepping
        task = None if task_index is None else slot.record(task_index).current()
        if task is not None and slot.nonce == effect.child.nonce and self._stacks.request(effect.child):
            self._background.start(self._write_blocked(effect, task))

    async def _write_blocked(self, effect: do.ReportBlocked, task: TaskInSlot) -> None:
        await asyncio.sleep(STACK_SECONDS)
        log.logger().warning(
            log_events.WORKER_BLOCKED,
            pool=effect.pool,
            slot=effect.child.slot,
            child_pid=effect.child.pid,
            task=task.name,
            task_id=task.id,
            queue=task.queue,
            seconds=effect.seconds,
            stack=shortened(self._stacks.text(effect.child), _STACK_CHARACTERS) or "it did not reply",
        )

    async def _write(self) -> None:
        try:
            fleet = current_status(self._state, self._memory)
            for left_out in ("processes", "events", "pid"):
                del fleet[left_out]
            log.logger().info(log_events.FLEET_STATUS, **fleet)
            await self._write_stacks()
        finally:
            self._is_writing = False

    async def _write_stacks(self) -> None:
        alive = AT_WORK | {ChildState.BOOTING}
        children = sorted((child for child in self._state.children if child.state in alive), key=attrgetter("slot"))
        requested = {child.nonce for child in children if self._request_stack(child)}
        await asyncio.sleep(STACK_SECONDS if requested else 0)
        for child in children:
            log.logger().info(
                log_events.WORKER_STACK,
                child=child.role.value,
                pool=child.pool,
                slot=child.slot,
                child_pid=child.pid,
                state=child.state.value,
                stack=self._stack_of(child, was_requested=child.nonce in requested),
            )
            self._stacks.request_task_stacks(child.ref)
            await asyncio.sleep(_LINE_SECONDS)

    def _request_stack(self, child: Child) -> bool:
        return not _is_dying(child) and child.stopped_at is None and self._stacks.request(child.ref)

    def _stack_of(self, child: Child, *, was_requested: bool) -> str:
        if not was_requested:
            return (
                "it is stopped"
                if child.stopped_at is not None
                else "its stack cannot be requested now, for example because it is starting"
            )
        if _is_dying(child):
            return "it is being killed: see the event of its death"
        return shortened(self._stacks.text(child.ref), _STACK_CHARACTERS) or "it did not reply"


def _is_dying(child: Child) -> bool:
    """Whether the master has just requested the stack of a child because it is about to kill the child. The stack is
    then included in the log event of the child's death, and not in the report."""
    return boottime_seconds() - child.dumped_at < _DYING_SECONDS
