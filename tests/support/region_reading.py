"""The metrics that one process has recorded, read as the exporter reads them."""

from collections.abc import Iterator

from rota.child.slot_memory import SlotMemory
from rota.telemetry.recorder import SlotRecord, series_of
from rota_supervisor.exporter.regions import RegionReader, Regions, Total
from rota_supervisor.exporter.series import Series, SeriesBound


def reader_of(region: memoryview, totals: dict[bytes, Total]) -> RegionReader:
    """Return a reader of the metrics in one slot. It adds the values that it reads to `totals`, by the key of the
    record.
    """

    def total_of(record: SlotRecord) -> Total | None:
        series = series_of(record)
        return None if series is None else totals.setdefault(record.key, Total(*series, 0.0))

    return RegionReader(region, total_of)


def read_region(region: memoryview) -> Iterator[Series]:
    """Yield all metric series that a process has recorded in its slot."""
    return reader_of(region, {}).read()


def regions_of(memory: SlotMemory, room: int = 1000) -> Regions:
    """Return a reader of the metrics in all slots. `room` is the highest number of different label sets of queues and
    tasks that it keeps apart.
    """
    return Regions(memory, SeriesBound(room=room))
