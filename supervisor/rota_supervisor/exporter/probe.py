"""What a probe asks for, read from the slots: it takes a millisecond, and waits for nothing."""

from rota.child.slot_memory import SlotMemory
from rota.child.slots import MASTER_SLOT, boottime_ns
from rota.telemetry import metrics as m
from rota_supervisor.exporter import health
from rota_supervisor.exporter.fleet import NANOSECONDS, Member, members
from rota_supervisor.exporter.regions import Regions
from rota_supervisor.exporter.settings import ExporterSettings
from rota_supervisor.notice import Json, Notice


class Probe:
    """Looks at the slots of `memory`. Not safe for two threads at once: each has its own."""

    def __init__(self, settings: ExporterSettings, memory: SlotMemory, master_pid: int) -> None:
        self._settings = settings
        self._memory = memory
        self._master_pid = master_pid
        self._notice = Notice(memory.slot(MASTER_SLOT).spare)
        self.regions = Regions(memory, settings.max_series)

    def alive(self) -> health.HealthVerdict:
        """Whether the master lives."""
        master = members(self._memory, (MASTER_SLOT,), self._master_pid)
        return health.alive(master, self._settings.tick_seconds)

    def ready(self) -> health.HealthVerdict:
        """Whether this node takes work."""
        return health.ready(
            self.fleet(),
            self.held(),
            tick_seconds=self._settings.tick_seconds,
            beat_seconds=self._settings.beat_seconds,
            redis_up=self.regions.read_slot(MASTER_SLOT).value(m.REDIS_UP) == 1,
        )

    def fleet(self) -> tuple[Member, ...]:
        """All living processes."""
        return members(self._memory, self.regions.touched(), self._master_pid)

    def held(self) -> tuple[Json, ...]:
        """The pools whose starts are held back."""
        now = boottime_ns() / NANOSECONDS
        return tuple(held.row(now) for held in self._notice.read())
