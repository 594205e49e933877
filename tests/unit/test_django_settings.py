"""The setting `ROTA` of a Django project, and the OPTIONS of the project's task backend. All faults in these settings
are reported.
"""

from typing import Any

import pytest
from django.core.checks import run_checks
from django.core.exceptions import ImproperlyConfigured

import rota
from support.django_project import set_up_again


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("redis://", "ROTA must be a dict, got str. For example: ROTA = {"),
        ({"redis_ulr": "redis://h"}, "ROTA has no setting 'redis_ulr'. Did you mean 'redis_url'?"),
        ({"celery": 1}, "ROTA has no setting 'celery'. The settings in ROTA are redis_url, namespace,"),
        ({"redis_url": "http://h"}, 'ROTA["redis_url"]: '),
        ({"redis_url": 6379}, 'ROTA["redis_url"]: redis_url must be a string, got a value of type int. Correct'),
        ({"redis_url": "redis://h", "namespace": "a b"}, "ROTA[\"namespace\"]: namespace 'a b' is not valid"),
        (
            {"redis_url": "redis://h", "max_payload_kb": 0},
            'ROTA["max_payload_kb"]: max_payload_kb must be 1 or more, got 0',
        ),
        ({"redis_url": "redis://h", "durability": "some"}, 'ROTA["durability"]: '),
        ({"redis_url": "redis://h", "timeout_seconds": 0}, 'ROTA["timeout_seconds"]: timeout_seconds must be'),
        ({"redis_url": "redis://h", "on_commit": None}, "on_commit must be True or False, got None"),
        ({}, "No server is configured, so enqueueing tasks will fail. Set ROTA["),
    ],
)
def test_errors_in_the_django_settings_name_the_fault_and_the_remedy(
    given: object, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ROTA_REDIS_URL", raising=False)
    monkeypatch.delenv("REDIS_URL", raising=False)
    with set_up_again(given):
        [fault] = run_checks(tags=["rota"])
    assert told in f"{fault.msg} {fault.hint}"


def test_valid_settings_pass_the_system_check() -> None:
    with set_up_again({"redis_url": "redis://h", "namespace": "shop", "timeout_seconds": 2, "on_commit": False}):
        assert run_checks(tags=["rota"]) == []


def test_invalid_settings_are_refused_without_a_system_check() -> None:
    with set_up_again({"redis_url": "redis://h", "namespace": "a b"}), pytest.raises(rota.InvalidName):
        rota.default_client()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"retires": 3}, 'TASKS["mail"]["OPTIONS"]: '),
        ({"retries": -1}, 'TASKS["mail"]["OPTIONS"]: retries must be 0 or more, got -1'),
        ({"queue": "mail"}, "set the queue of each task with queue_name"),
        ({"priority_queues": {"high": "urgent"}}, "must map priorities to queues, for example {50: "),
        ({"priority_queues": {50: "a b"}}, "must map priorities to queues, for example {50: "),
    ],
)
def test_invalid_options_of_a_backend_are_named_with_their_path(options: dict[str, Any], told: str) -> None:
    with set_up_again({}):
        from rota.contrib.django.tasks import RotaBackend  # noqa: PLC0415 - the settings must exist before the import

        with pytest.raises(ImproperlyConfigured) as raised:
            RotaBackend("mail", {"OPTIONS": options})
    assert told in str(raised.value)


@pytest.mark.parametrize(
    ("priority", "queue"),
    [(0, "default"), (9, "default"), (10, "soon"), (49, "soon"), (50, "urgent"), (-9, "default"), (-50, "bulk")],
)
def test_a_django_priority_selects_the_queue_of_the_last_threshold_reached(priority: int, queue: str) -> None:
    with set_up_again({}):
        from rota.contrib.django.tasks import queue_for  # noqa: PLC0415 - the settings must exist before the import

    assert queue_for(priority, {50: "urgent", 10: "soon", -10: "bulk"}) == queue
