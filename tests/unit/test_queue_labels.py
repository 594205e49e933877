"""Under which name a queue is counted."""

import pytest

from rota.protocol.patterns import served_as
from rota.telemetry.queue_labels import QueueLabels

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
def test_a_queue_is_counted_as_what_serves_it(queue: str, label: str) -> None:
    assert QueueLabels(SERVED).of(queue) == label
    assert served_as(queue, SERVED) in (label, None)


def test_a_label_is_its_own_label() -> None:
    assert [QueueLabels(SERVED).of(name) for name in SERVED] == SERVED


def test_without_patterns_every_queue_has_its_own_name() -> None:
    assert QueueLabels(["a", "b"]).of("a1") == "a1"
