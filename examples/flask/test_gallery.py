"""The gallery's own tests. The first two tests need no server. The others start a fleet and a server."""

import pytest
from flask.testing import FlaskClient

import rota
from gallery import create_app
from gallery_tasks import make_thumbnail
from rota.testing import Capture


@pytest.fixture
def browser() -> FlaskClient:
    return create_app().test_client()


def test_an_upload_enqueues_the_thumbnail(browser: FlaskClient, rota_capture: Capture) -> None:
    assert browser.post("/pictures", data={"name": "cat.png"}).status_code == 202
    rota_capture.assert_enqueued(make_thumbnail, args=["cat.png"])


def test_without_a_server_an_upload_is_refused(browser: FlaskClient) -> None:
    rota.configure(redis_url="redis://127.0.0.1:1")
    response = browser.post("/pictures", data={"name": "cat.png"})
    assert (response.status_code, "127.0.0.1:1" in response.text) == (503, True)


@pytest.mark.usefixtures("rota_fleet")
def test_a_fleet_makes_the_thumbnail(browser: FlaskClient) -> None:
    task_id = browser.post("/pictures", data={"name": "cat.png"}).get_json()["task"]
    assert rota.default_client().result(task_id, timeout=30) == "small-cat.png"
    assert browser.get(f"/tasks/{task_id}").get_json() == {"state": "done", "error": ""}


@pytest.mark.usefixtures("rota_fleet")
def test_the_error_for_an_invalid_picture_is_shown(browser: FlaskClient) -> None:
    task_id = browser.post("/pictures", data={"name": "cat.txt"}).get_json()["task"]
    rota.default_client().wait(task_id, timeout=30)
    response = browser.get(f"/tasks/{task_id}")
    assert response.status_code == 200
    assert response.get_json() == {"state": "dead", "error": "cat.txt is not a picture"}
