"""The types of `rota.testing` and its fixtures. This file is not run, but `test_client_types` checks its types."""

from datetime import UTC, datetime, timedelta
from typing import Any, assert_type

import rota
from rota.testing import Capture, CaptureClock, CapturedCall, Ran, capture, eager
from rota_supervisor.testing import FleetOfTest


@rota.task
def resize(image_id: int, size: str = "s") -> str:
    return f"{image_id}{size}"


@rota.task
async def fetch(url: str) -> bytes:
    return url.encode()


def captured(rota_capture: Capture) -> None:
    with capture(at=datetime.now(UTC), schedules=False) as calls:
        assert_type(calls, Capture)
    assert_type(calls[0], CapturedCall)
    assert_type(calls[1:], list[CapturedCall])
    assert_type(calls[0].args, list[Any])
    assert_type(calls[0].at, datetime | None)
    assert_type([call.delay for call in calls], list[float])
    assert_type(calls.of(fetch, args=["u"]), list[CapturedCall])
    calls.assert_enqueued(resize, args=(7,), kwargs={"size": "l"}, delay=timedelta(minutes=1), queue="default", times=1)
    calls.assert_enqueued("resize", unique=True, retries=3, front=False, id="one", kind="periodic")
    calls.assert_not_enqueued()
    calls.assert_not_enqueued(resize, at=datetime.now(UTC))
    assert_type(calls.clock, CaptureClock)
    assert_type(calls.clock.move(60), datetime)
    assert_type(calls.clock.move_to(datetime.now(UTC)), datetime)
    assert_type(rota_capture.drain(raises=False, limits=True, most=10), list[Ran])
    assert_type(rota_capture.drain()[0].exception, BaseException | None)


def run_at_once() -> None:
    with eager(retries=True, limits=True, raises=False) as ran:
        assert_type(ran, list[Ran])
        assert_type(resize.enqueue(7).result(), str)
    assert_type(ran[0].outcome, str)


def on_a_fleet(rota_fleet: FleetOfTest) -> None:
    assert_type(rota_fleet.client, rota.Client)
    assert_type(rota_fleet.log, str)


def refused(calls: Capture) -> None:
    calls.assert_enqueued(resize, countdown=3)  # type: ignore[call-arg]  # nothing to expect
    calls.assert_enqueued(resize, [7])  # type: ignore[call-arg, arg-type]  # args by their name
    calls.assert_enqueued(resize, delay="60")  # type: ignore[arg-type]  # not seconds
    calls.assert_enqueued(resize.enqueue)  # type: ignore[arg-type]  # not a task
    calls.clock.move("1h")  # type: ignore[arg-type]  # not seconds
    eager(3)  # type: ignore[call-arg, arg-type]  # keyword only
