"""The application's own tests. The first test needs no server. The others start their own."""

from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

import rota
from invoice_tasks import make_invoice
from invoices import app
from rota.testing import Capture


@pytest.fixture
def browser() -> Iterator[TestClient]:
    with TestClient(app) as browser:
        yield browser


def test_a_request_enqueues_the_invoice(rota_capture: Capture, browser: TestClient) -> None:
    assert browser.post("/invoices/7").status_code == 202
    rota_capture.assert_enqueued(make_invoice, args=[7])


@pytest.mark.usefixtures("rota_fleet")
def test_a_fleet_makes_the_invoice(browser: TestClient) -> None:
    task_id = browser.post("/invoices/7").json()["task"]
    assert rota.default_client().result(task_id, timeout=30) == "invoice-7.pdf"
    assert browser.get(f"/tasks/{task_id}").json() == {"state": "done", "error": ""}


@pytest.mark.usefixtures("rota_fleet")
def test_the_error_of_a_failed_invoice_is_shown(browser: TestClient) -> None:
    task_id = browser.post("/invoices/0").json()["task"]
    rota.default_client().wait(task_id, timeout=30)
    assert browser.get(f"/tasks/{task_id}").json() == {"state": "dead", "error": "there is no order 0"}


def test_without_a_server_a_request_is_refused(rota_client: rota.Client, browser: TestClient) -> None:
    rota.configure(redis_url="redis://127.0.0.1:1", namespace=rota_client.namespace)  # for this test only
    response = browser.post("/invoices/7")
    assert (response.status_code, "127.0.0.1:1" in response.text) == (503, True)
