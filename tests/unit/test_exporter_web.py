"""The responses of the HTTP endpoints when something fails."""

import json
import os
from http import HTTPStatus

import pytest

from rota.child.child_settings import LogSettings, ServerSettings
from rota.child.slot_memory import SharedText, SlotMemory
from rota.child.slots import MASTER_SLOT
from rota.telemetry import log
from rota_supervisor.exporter.access import AccessRules
from rota_supervisor.exporter.endpoints import Site
from rota_supervisor.exporter.http_connection import HttpRequest
from rota_supervisor.exporter.observer import Observation, Observer, OwnSlot, Probe
from rota_supervisor.fleet_snapshot import Health
from rota_supervisor.layout import EXPORTER_SLOT
from rota_supervisor.master_snapshot import FleetEvent, MasterSnapshot
from support.child_settings import exporter_settings

EVENT = FleetEvent(1, 0.0, "info", "fleet.ready", "the fleet is ready", {})


class BadProbe(Probe):
    def alive(self) -> Health:
        raise LookupError("no slot")


class BadObserver(Observer):
    def observe(self) -> Observation:
        raise LookupError("no slot")


@pytest.mark.parametrize("path", ["/livez", "/metrics", "/status.json"])
def test_an_internal_error_of_the_exporter_returns_500_and_is_logged(
    path: str, capfd: pytest.CaptureFixture[str]
) -> None:
    log.configure(LogSettings())
    settings = exporter_settings({}, ServerSettings("redis://127.0.0.1:1/0", "web"))
    memory = SlotMemory.create(8)
    own = OwnSlot.of(memory.slot(EXPORTER_SLOT))
    observer = BadObserver(settings, memory, os.getpid(), lambda: None, own)
    site = Site(settings, BadProbe(settings, memory, os.getpid()), observer, None, AccessRules(settings))
    request = HttpRequest("GET", path, "", {})
    answer = site.immediate_response(request) or site.page(request)
    assert answer.status is HTTPStatus.INTERNAL_SERVER_ERROR
    assert b"see the log for the error" in answer.body
    logged = "".join(capfd.readouterr())
    assert "exporter.request_failed" in logged
    assert "no slot" in logged
    os.close(memory.fd)


@pytest.mark.parametrize("number", ["9" * 5000, "-1", "x", ""])
def test_an_invalid_event_number_in_a_request_filters_no_events(number: str) -> None:
    settings = exporter_settings({}, ServerSettings("redis://127.0.0.1:1/0", "web"))
    memory = SlotMemory.create(8)
    SharedText(memory.slot(MASTER_SLOT).far_spare).publish(MasterSnapshot(events=(EVENT,)).to_json(8192))
    observer = Observer(settings, memory, os.getpid(), lambda: None, OwnSlot.of(memory.slot(EXPORTER_SLOT)))
    site = Site(settings, Probe(settings, memory, os.getpid()), observer, None, AccessRules(settings))
    answer = site.page(HttpRequest("GET", "/status.json", f"events_after={number}", {}))
    assert answer.status is HTTPStatus.OK
    assert [event["n"] for event in json.loads(answer.body)["events"]] == [1]
    os.close(memory.fd)
