"""The data that the master and the exporter leave in their slots for each other."""

import json
import threading

import pytest

from rota.child.slot_memory import SharedText, SlotMemory
from rota.child.slots import MASTER_SLOT
from rota.protocol.nodes import NodeReport
from rota_supervisor.master_snapshot import (
    ChildFacts,
    Closed,
    FleetEvent,
    MasterSnapshot,
    NodeThroughput,
    PoolFacts,
    PoolInBackoff,
    dated,
    read_throughput,
)

ROOM = 1 << 18
WHOLE = MasterSnapshot(
    node="web-1",
    url="http://web-1:9477/",
    pools=(PoolFacts("mail", 2, "file", 2, 1, {"running": 1}),),
    held=(PoolInBackoff("worker", "mail", "fatal", 3, 9.5, "killed by SIGSEGV"),),
    quiet_since=4.0,
    closed=(Closed("bulk", "", "", 2.0),),
    last_reload={"result": "success", "changes": [], "at": 1.0},
    last_death={"child": "worker", "at": 2.0},
    children=(ChildFacts(8, "mail", 1, "ready", 5.5), ChildFacts(1, "", 1)),
    events=(FleetEvent(1, 2.0, "info", "fleet.ready", "the fleet is ready", {"workers": 2}),),
)


def event(number: int) -> FleetEvent:
    return FleetEvent(number, number / 8, "warning", "worker.exited", "é" * 300, {"slot": number})


def test_the_latest_shared_text_can_be_read_through_another_memory_mapping() -> None:
    memory = SlotMemory.create(1)
    writing = SharedText(memory.slot(MASTER_SLOT).far_spare)
    reading = SharedText(SlotMemory.to_read(memory.fd).slot(MASTER_SLOT).far_spare)
    assert reading.read() == b""
    for text in (b"one", b"another", b""):
        writing.publish(text)
        assert reading.read() == text


def test_shared_text_that_is_too_long_is_refused_and_the_old_text_kept() -> None:
    shared_text = SharedText(memoryview(bytearray(4096)))
    shared_text.publish(b"before")
    shared_text.publish(b"x" * shared_text.capacity)
    with pytest.raises(ValueError, match="room for only"):
        shared_text.publish(b"x" * (shared_text.capacity + 1))
    assert shared_text.read() == b"x" * shared_text.capacity


def test_a_reader_never_sees_a_mixture_of_two_shared_texts() -> None:
    memory = SlotMemory.create(1)
    writing, reading = (SharedText(memory.slot(MASTER_SLOT).far_spare) for _ in range(2))
    over = threading.Event()

    def write() -> None:
        number = 0
        while not over.is_set():
            number = (number + 1) % 50
            writing.publish(bytes([number]) * (1 + 1000 * number))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(5_000):
            read = reading.read()
            assert len(set(read)) <= 1
            assert not read or len(read) == 1 + 1000 * read[0]
    finally:
        over.set()
        writer.join()


def test_a_snapshot_survives_encoding_and_an_empty_text_means_an_empty_snapshot() -> None:
    assert MasterSnapshot.from_json(WHOLE.to_json(ROOM)) == WHOLE
    assert MasterSnapshot.from_json(b"") == MasterSnapshot()


def test_a_snapshot_without_room_omits_its_oldest_events_and_last_rows() -> None:
    held = tuple(
        PoolInBackoff("worker", f"pool-{number}", "backoff", number, 0.0, "é" * 10_000) for number in range(50)
    )
    whole = MasterSnapshot(held=held, events=tuple(map(event, range(1, 101))))
    raw = whole.to_json(8192)
    assert len(raw) <= 8192
    read = MasterSnapshot.from_json(raw)
    assert [row.failures for row in read.held] == list(range(len(read.held)))
    assert [each.n for each in read.events] == list(range(101 - len(read.events), 101))
    assert 0 < len(read.held) < 50


def test_operator_events_are_dated_by_the_wall_clock_of_the_reader() -> None:
    assert dated({"result": "success", "at": 90.0}, now=100.0, wall=5000.0) == {"result": "success", "at": 4990.0}
    assert dated(None, 100.0, 5000.0) is None


def test_outdated_or_invalid_throughput_of_a_node_is_ignored() -> None:
    throughput = NodeThroughput(100.0, 12.5, 0.001, None, 0.0)
    assert read_throughput(throughput.to_json(), 104.0) == throughput
    assert read_throughput(throughput.to_json(), 200.0) is None
    for nonsense in (b"", b"[]", b"{", b"7", b"[1,2]", json.dumps(["x", 1, 2, 3, 4]).encode(), b"\xff"):
        assert read_throughput(nonsense, 104.0) is None


def test_the_report_of_a_node_includes_its_throughput() -> None:
    report = NodeThroughput(100.0, 12.5, 0.001, 0.2, 0.25).added_to(NodeReport(state="running", workers=3))
    assert report == NodeReport(
        state="running", workers=3, done_per_second=12.5, lag_p50_seconds=0.001, lag_p99_seconds=0.2, late=0.25
    )
