"""What the endpoints do when something fails."""

import os
from http import HTTPStatus

import pytest

from child_settings import exporter_settings
from exporting import EXPORTER_SLOT
from rota.child.settings import LogSettings, ServerSettings
from rota.child.slot_memory import SlotMemory
from rota.telemetry import log
from rota.telemetry.recorder import Recorder
from rota_supervisor.exporter.client import HttpRequest
from rota_supervisor.exporter.fleet import Health, Probe
from rota_supervisor.exporter.observer import Observation, Observer
from rota_supervisor.exporter.web import Site


class BadProbe(Probe):
    def alive(self) -> Health:
        raise LookupError("no slot")


class BadObserver(Observer):
    def observe(self) -> Observation:
        raise LookupError("no slot")


@pytest.mark.parametrize("path", ["/livez", "/", "/metrics", "/status.json"])
def test_a_failure_of_ours_is_answered_as_such_and_logged(path: str, capfd: pytest.CaptureFixture[str]) -> None:
    log.configure(LogSettings())
    settings = exporter_settings({}, ServerSettings("redis://127.0.0.1:1/0", "web"))
    memory = SlotMemory.create(8)
    own = Recorder(memory.slot(EXPORTER_SLOT).metrics)
    site = Site(
        settings, BadProbe(settings, memory, os.getpid()), BadObserver(settings, memory, os.getpid(), lambda: None, own)
    )
    request = HttpRequest("GET", path, "", {})
    answer = site.at_once(request) or site.page(request)
    assert answer.status is HTTPStatus.INTERNAL_SERVER_ERROR
    assert b"its log says why" in answer.body
    logged = "".join(capfd.readouterr())
    assert "exporter.request_failed" in logged
    assert "no slot" in logged
    os.close(memory.fd)
