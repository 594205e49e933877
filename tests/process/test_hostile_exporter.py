"""The output of an exporter while the slots of the children contain hostile data."""

from collections.abc import Iterator

import pytest

from rota.child.slots import Phase
from rota.telemetry.metrics import TASK_EARLY_STARTS
from rota_supervisor.master_snapshot import MasterSnapshot, PoolInBackoff
from support.exporting import WORKER_SLOT, Exporter, settings_for
from support.hostile import HOSTILE, VALID, unfit_in


@pytest.fixture
def exporter() -> Iterator[Exporter]:
    made = Exporter(settings_for("redis://127.0.0.1:1/0", "hostile", VALID))
    yield made
    made.end()
    made.close()


def test_no_endpoint_shows_escape_codes_of_a_child(exporter: Exporter) -> None:
    exporter.publish(MasterSnapshot(held=(PoolInBackoff("worker", VALID, "fatal", 3, 0.0, HOSTILE),)))
    exporter.fill(WORKER_SLOT, Phase.IDLE)
    exporter.recorder(WORKER_SLOT).counter(TASK_EARLY_STARTS, VALID).add()
    exporter.start()
    for page in ("/status.json", "/metrics", "/readyz", "/readyz?verbose", "/livez"):
        answer = exporter.get(page)
        assert answer.status in (200, 503)
        assert unfit_in(answer.body) == "", page
        if page != "/livez":
            assert "before" in answer.body, page
