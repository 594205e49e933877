"""Slots in ordinary memory, which the master and the children of a simulated node share."""

import mmap
from typing import Protocol

from rota.child.slot_layout import PROCESS_ROW_BYTES, REGION_BYTES
from rota.child.slot_memory import SlotMemory
from rota.child.slots import Slot
from rota_supervisor.layout import SLOTS
from simulation.timeline import NANOSECONDS


class Tenant(Protocol):
    """The process that occupies a slot."""

    pid: int
    nonce: int
    alive: bool

    @property
    def is_beating(self) -> bool:
        """Whether the main thread of the process is responsive."""

    def boottime(self) -> float:
        """Return the current time of the process's clock."""


class SimulatedSlot(Slot):
    """A slot in which heartbeats need no events. While the process responds, the time of its last heartbeat is always
    the current time.
    """

    tenant: Tenant | None = None

    def enter_slot(self, process: Tenant) -> bool:
        """Take the slot for a process. Return False if the slot was assigned to another process in the meantime."""
        if not self.enter(process.nonce, process.pid):
            return False
        self.tenant = process
        return True

    @property
    def is_lived_in(self) -> bool:
        """Whether the process that last took the slot is alive and writes to it."""
        return self.tenant is not None and self.tenant.alive

    @property
    def heartbeat_ns(self) -> int:
        tenant = self.tenant
        if tenant is not None and tenant.is_beating and tenant.nonce == self.nonce:
            return round(tenant.boottime() * NANOSECONDS)
        return super().heartbeat_ns


class SimulatedMemory(SlotMemory):
    """All slots of a node, created when they are first used."""

    def __init__(self) -> None:
        self.count = SLOTS
        self._places: dict[int, SimulatedSlot] = {}

    def slot(self, number: int) -> SimulatedSlot:
        found = self._places.get(number)
        if found is None:
            found = self._places[number] = SimulatedSlot(
                memoryview(mmap.mmap(-1, REGION_BYTES)), memoryview(bytearray(PROCESS_ROW_BYTES))
            )
        return found
