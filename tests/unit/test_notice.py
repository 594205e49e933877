"""The master's notice in its slot, for the exporter."""

import threading

from rota.child.slot_memory import SlotMemory
from rota.child.slots import MASTER_SLOT
from rota_supervisor.notice import Held, Notice


def held(number: int, words: str = "killed by SIGSEGV") -> Held:
    return Held("worker", f"pool-{number}", "backoff", number, number / 8, words)


def test_what_is_put_up_is_read_in_another_mapping_and_the_last_one_holds() -> None:
    memory = SlotMemory.create(1)
    writing = Notice(memory.slot(MASTER_SLOT).spare)
    reading = Notice(SlotMemory.to_read(memory.fd).slot(MASTER_SLOT).spare)
    assert reading.read() == ()
    for number in range(1, 5):
        writing.write([held(number), held(7)])
        assert reading.read() == (held(number), held(7))
    writing.write([])
    assert reading.read() == ()


def test_what_does_not_fit_is_cut_and_left_out_at_the_end() -> None:
    area = memoryview(bytearray(4096))
    notice = Notice(area)
    notice.write([held(number, "é" * 10_000) for number in range(50)])
    read = notice.read()
    assert [row.failures for row in read] == list(range(len(read)))
    assert 0 < len(read) < 50


def test_a_reader_never_sees_two_notices_mixed() -> None:
    memory = SlotMemory.create(1)
    writing, reading = (Notice(memory.slot(MASTER_SLOT).spare) for _ in range(2))
    over = threading.Event()

    def write() -> None:
        number = 0
        while not over.is_set():
            number = (number + 1) % 50
            writing.write([held(number)] * (1 + number))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(5_000):
            read = reading.read()
            assert len(set(read)) <= 1
            assert all(len(read) == 1 + row.failures for row in read)
    finally:
        over.set()
        writer.join()
