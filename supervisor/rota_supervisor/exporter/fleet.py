"""The fleet at one instant, as its slots and the kernel show it."""

from collections.abc import Iterable
from dataclasses import dataclass

from rota.child.slot_memory import SlotMemory
from rota.child.slot_task import TaskInSlot
from rota.child.slots import MASTER_SLOT, Phase, Slot, boottime_ns
from rota_supervisor.exporter.kernel import parent_of
from rota_supervisor.layout import Role, role_of

NANOSECONDS = 1_000_000_000
_SET_BY_ITS_PROCESS = frozenset({Phase.IDLE, Phase.BUSY, Phase.DRAINING, Phase.QUIET})


@dataclass(frozen=True, slots=True)
class Member:
    """A living process of the fleet. `task_age_seconds` and `task_left_seconds` are 0 when nothing runs;
    the latter is infinite for a task without a deadline."""

    slot: int
    role: Role
    pid: int
    phase: Phase
    beat_age_seconds: float
    task: TaskInSlot | None = None
    task_age_seconds: float = 0.0
    task_left_seconds: float = 0.0

    @property
    def has_begun(self) -> bool:
        """Whether the gauges in its slot are its own, not its predecessor's."""
        return self.role is Role.MASTER or self.phase in _SET_BY_ITS_PROCESS


def members(memory: SlotMemory, touched: Iterable[int], master_pid: int) -> tuple[Member, ...]:
    """All living processes in the slots ever written to, by slot."""
    now_ns = boottime_ns()
    found = (_member(number, memory.slot(number), now_ns) for number in touched)
    return tuple(member for member in found if is_ours(member.pid, master_pid))


def is_ours(pid: int, master_pid: int) -> bool:
    """Whether that process lives and is the master or its child, not a stranger who got the number later."""
    if pid in (0, master_pid):
        return pid == master_pid
    return parent_of(pid) == master_pid


def _member(number: int, slot: Slot, now_ns: int) -> Member:
    task = slot.current_task()
    return Member(
        slot=number,
        role=role_of(number),
        pid=slot.pid,
        phase=slot.phase,
        beat_age_seconds=max(0, now_ns - slot.beat_ns) / NANOSECONDS,
        task=task,
        task_age_seconds=_seconds_since(task.started_ns, now_ns) if task else 0.0,
        task_left_seconds=_seconds_left(task.deadline_ns, now_ns) if task else 0.0,
    )


def _seconds_since(at_ns: int, now_ns: int) -> float:
    return max(0, now_ns - at_ns) / NANOSECONDS


def _seconds_left(deadline_ns: int, now_ns: int) -> float:
    return (deadline_ns - now_ns) / NANOSECONDS if deadline_ns else float("inf")


def master_of(fleet: tuple[Member, ...]) -> Member | None:
    """The master among them."""
    return next((member for member in fleet if member.slot == MASTER_SLOT), None)
