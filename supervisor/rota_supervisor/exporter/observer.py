"""Everything that a scrape or the status page needs to know."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from rota import __version__
from rota.child.slot_memory import SlotMemory
from rota.telemetry import metrics as m
from rota_supervisor.exporter.computed import CpuAccount, put_fleet, put_reading, put_settings, put_usage
from rota_supervisor.exporter.families import empty_families, families
from rota_supervisor.exporter.fleet import Member
from rota_supervisor.exporter.health import HealthVerdict
from rota_supervisor.exporter.kernel import started_at, usage_of
from rota_supervisor.exporter.lag import Lag, LagWindow
from rota_supervisor.exporter.libraries import Metric
from rota_supervisor.exporter.probe import Probe
from rota_supervisor.exporter.queues import QueueReading
from rota_supervisor.exporter.samples import Samples
from rota_supervisor.exporter.settings import ExporterSettings
from rota_supervisor.exporter.zeroes import zeroes
from rota_supervisor.notice import Json


class Watch(Protocol):
    """Knows the queues; None while Redis does not answer."""

    def read(self) -> QueueReading | None:
        """Ask, for half a second at most."""


@dataclass(frozen=True, slots=True)
class Observation:
    """What was seen at one time: the living processes, all samples, the lag of the last minutes by queue, and
    the queues if Redis answered, whether this node takes work, and the pools whose starts are held back."""

    fleet: tuple[Member, ...]
    samples: Samples
    lags: Mapping[str, Lag]
    reading: QueueReading | None
    ready: HealthVerdict
    held: tuple[Json, ...] = ()


class Observer:
    """Reads the slots of `memory` and asks `watch` for the queues. Also a collector of prometheus_client. Not safe for
    two threads at once."""

    def __init__(self, settings: ExporterSettings, memory: SlotMemory, master_pid: int, watch: Watch) -> None:
        self._settings = settings
        self._started_at = started_at(master_pid)
        self._watch = watch
        self._probe = Probe(settings, memory, master_pid)
        self._regions = self._probe.regions
        self._cpu = CpuAccount()
        self._lag = LagWindow()
        self._zeroes = list(zeroes(queue.name for queue in settings.queues))
        for definition, labels in self._zeroes:
            self._regions.bound.keep(definition, labels)

    def collect(self) -> Iterator[Metric]:
        """The families of a scrape, for prometheus_client's registry."""
        return families(self.observe().samples)

    def describe(self) -> Iterator[Metric]:
        """Which metrics `collect` may give, so that a scrape can ask for some (`?name[]=`)."""
        return empty_families()

    def observe(self) -> Observation:
        """Look at everything."""
        began = time.monotonic()
        reading = self._watch.read()
        fleet, samples = self._read_slots()
        lags = self._lag.lags(samples, began)
        put_settings(samples, self._settings, __version__, self._started_at)
        put_fleet(samples, fleet, self._settings.queues)
        if reading is not None:
            put_reading(samples, reading)
        samples.put(m.COLLECT_SECONDS, (), time.monotonic() - began)
        return Observation(fleet, samples, lags, reading, self._probe.ready(), self._probe.held())

    def note_lag(self) -> None:
        """Remember how the lag stands now, if it is time to; to be called every second or so."""
        now = time.monotonic()
        if self._lag.is_due(now):
            self._lag.note(self._regions.read(()), now)

    def _read_slots(self) -> tuple[tuple[Member, ...], Samples]:
        fleet = self._probe.fleet()
        samples = self._regions.read({member.slot for member in fleet if member.has_begun})
        for definition, labels in self._zeroes:
            samples.add(definition, labels, (0.0,) * definition.numbers)
        samples.add(m.SERIES_DROPPED, (), (float(self._regions.bound.refused),))
        usages = {member: usage for member in fleet if (usage := usage_of(member.pid))}
        put_usage(samples, usages)
        self._cpu.put(samples, usages)
        return fleet, samples
