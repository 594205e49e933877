"""The queue label under which metrics count a queue."""

import pytest

from rota.child.slot_memory import SlotMemory
from rota.child.slots import MASTER_SLOT
from rota.protocol.keys import served_as
from rota.telemetry import metrics as m
from rota.telemetry.metrics import QueueLabels
from rota_supervisor.config.model import Config
from rota_supervisor.master.core.effects import AddToCounter
from rota_supervisor.master.effects.master_output import Display
from support.cores import Core
from support.region_reading import read_region

SERVED = ["default", "tenant-*", "tenant-eu-*", "tenant-acme", "x*"]


@pytest.mark.parametrize(
    ("queue", "label"),
    [
        ("default", "default"),
        ("tenant-7", "tenant-*"),
        ("tenant-", "tenant-*"),
        ("tenant-acme", "tenant-acme"),
        ("tenant-acme-2", "tenant-*"),
        ("tenant-eu-7", "tenant-eu-*"),
        ("x", "x*"),
        ("tenant", "tenant"),
        ("nobody", "nobody"),
        ("_other", "_other"),
    ],
)
def test_a_queue_is_counted_under_the_pattern_that_serves_it(queue: str, label: str) -> None:
    assert QueueLabels(SERVED).of(queue) == label
    assert served_as(queue, SERVED) in (label, None)


def test_a_queue_label_is_its_own_label() -> None:
    assert [QueueLabels(SERVED).of(name) for name in SERVED] == SERVED


def test_without_patterns_every_queue_has_its_own_name() -> None:
    assert QueueLabels(["a", "b"]).of("a1") == "a1"


def test_recovered_tasks_are_counted_as_the_pattern_that_serves_them() -> None:
    memory = SlotMemory.create(1)
    display = Display(Core(Config(tiers=(("mail", "tenant-*"),))).state, memory)
    for queue in ("mail", "tenant-1", "tenant-2"):
        display.add(AddToCounter(m.TASKS_RECOVERED, (queue, "child_exit")))

    found = {labels: numbers for _, labels, numbers in read_region(memory.slot(MASTER_SLOT).metrics)}
    assert found["mail", "child_exit"] == (1.0,)
    assert found["tenant-*", "child_exit"] == (2.0,)
