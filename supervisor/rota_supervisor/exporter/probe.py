"""What the exporter reads from the slots as it is: who lives, what the master says, what pollers found.

Whether the fleet is alive and ready follows from that alone: health is answered while Redis is silent.
"""

import json
from collections.abc import Iterable

from rota.child.child_life import boottime_seconds
from rota.child.slot_memory import Board, SlotMemory
from rota.child.slots import MASTER_SLOT, boottime_ns
from rota_supervisor.exporter.exporter_settings import ExporterSettings
from rota_supervisor.exporter.regions import touched
from rota_supervisor.fleet_members import Health, Member, liveness, member_in, readiness
from rota_supervisor.layout import Role
from rota_supervisor.notice import Json, Notice
from rota_supervisor.process import parent_of


class Probe:
    """What a probe asks for, read from the slots of `memory`: it takes a millisecond, and waits for nothing. Not safe
    for two threads at once: each has its own."""

    def __init__(self, settings: ExporterSettings, memory: SlotMemory, master_pid: int) -> None:
        self._settings = settings
        self._memory = memory
        self._master_pid = master_pid
        self._board = Board(memory.slot(MASTER_SLOT).far_spare)

    def alive(self) -> Health:
        return liveness(self._members((MASTER_SLOT,)), self._settings.tick_seconds)

    def ready(self) -> Health:
        return readiness(self.fleet(), self.notice(), boottime_seconds(), self._settings.patience)

    def fleet(self) -> tuple[Member, ...]:
        """Return the living processes among the slots that were ever written to, by slot."""
        return () if self._settings.alone else self._members(touched(self._memory))

    def _members(self, slots: Iterable[int]) -> tuple[Member, ...]:
        now_ns, pid = boottime_ns(), self._master_pid
        found = (member_in(number, self._memory.slot(number), now_ns) for number in slots)
        # The master or its child that lives, and not a stranger who got the number later.
        return tuple(each for each in found if each.pid == pid or (each.pid and parent_of(each.pid) == pid))

    def notice(self) -> Notice:
        """Return what the master says."""
        return Notice.from_json(self._board.read())

    def stray_lists(self, fleet: Iterable[Member]) -> tuple[Json, ...]:
        """Return the lists that look like queues and are not, as the pollers of this node found: `key`, `fault`."""
        pollers = (member.slot for member in fleet if member.role is Role.POLLER)
        texts = (Board(self._memory.slot(slot).spare).read() for slot in pollers)
        return tuple(row for text in texts if text for row in json.loads(text))
