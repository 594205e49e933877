"""The conversion of a claimed body to a call, or to the reason why the task can never run."""

import pytest

from rota.child.child_settings import TaskOverride, WorkerSettings
from rota.client.task import Task
from rota.protocol.keys import UNKNOWN_TASK
from rota.protocol.outcome import NotRunnable
from rota.tasks.claimed_call import Preparer, Runnable, Unfit
from rota.tasks.options import TaskOptions, check_options
from rota.tasks.registry import Registry
from support.child_settings import worker_settings


def _resize(image: int, *, width: int = 10) -> None:
    raise AssertionError(f"nothing is called here: {image} {width}")


def _settings(**overrides: TaskOverride) -> WorkerSettings:
    return worker_settings(time_limit_seconds=60.0, overrides=overrides)


def _registry(options: TaskOptions) -> Registry:
    registry = Registry()
    registry.add(Task(_resize, "resize", options))
    return registry


def _prepare(
    body: bytes, settings: WorkerSettings | None = None, options: TaskOptions | None = None
) -> Runnable | Unfit:
    return Preparer(_registry(options or TaskOptions()), settings or _settings()).prepare(body)


def test_a_body_becomes_a_call_with_its_positional_and_keyword_arguments() -> None:
    ready = _prepare(b'["id","q","resize",[1],{"kwargs":{"width":7}}]')
    assert isinstance(ready, Runnable)
    assert (ready.name, ready.args, ready.kwargs) == ("resize", (1,), {"width": 7})


@pytest.mark.parametrize(
    ("body", "fault", "name"),
    [
        (b"\xff", NotRunnable.GARBAGE, UNKNOWN_TASK),
        (b'["id","q","grow",[]]', NotRunnable.UNKNOWN_TASK, UNKNOWN_TASK),
        (b'["id","q","resize",[]]', NotRunnable.ARGUMENTS, "resize"),
        (b'["id","q","resize",[1],{"kwargs":{"height":1}}]', NotRunnable.ARGUMENTS, "resize"),
        (b'["id","q","resize",[1],{"options":{"retires":1}}]', NotRunnable.OPTIONS, "resize"),
        (b'["resize",["' + b"x" * (256 << 10) + b'"]]', NotRunnable.GARBAGE, UNKNOWN_TASK),
    ],
)
def test_a_body_that_cannot_be_run_is_reported_with_its_fault_and_task_name(
    body: bytes, fault: NotRunnable, name: str
) -> None:
    unfit = _prepare(body)
    assert isinstance(unfit, Unfit)
    assert (unfit.fault, unfit.name) == (fault, name)


def test_a_body_with_unknown_options_is_refused_but_other_fields_are_ignored() -> None:
    unfit = _prepare(b'["id","q","resize",[1],{"options":{"retires":1,"retries":2}}]')
    assert isinstance(unfit, Unfit)
    assert unfit.error.startswith("unknown options: 'retires'; a body may have the options retries, expires")
    own = _prepare(b'["id","q","resize",[1],{"options":{"retries":2,"expires":5},"retires":1,"trace":"x"}]')
    assert isinstance(own, Runnable)
    assert own.settings.options.retries == 2


def test_the_operators_time_limit_overrides_those_of_the_task_and_the_fleet() -> None:
    body, own = b'["resize",[1]]', TaskOptions(time_limit=30.0)
    fleet = _prepare(body)
    task = _prepare(body, options=own)
    operator = _prepare(body, _settings(resize=TaskOverride(time_limit_seconds=5.0)), own)
    assert [ready.settings.limit_ns for ready in (fleet, task, operator) if isinstance(ready, Runnable)] == [
        60 * 10**9,
        30 * 10**9,
        5 * 10**9,
    ]


def test_a_task_may_have_a_longer_time_limit_than_the_fleet() -> None:
    ready = _prepare(b'["resize",[1]]', options=check_options({"time_limit": 3600}))
    assert isinstance(ready, Runnable)
    assert ready.settings.limit_ns == 3600 * 10**9


@pytest.mark.parametrize(("soft", "in_force"), [(59.0, 59.0), (60.0, None), (70.0, None)])
def test_a_soft_limit_not_below_the_hard_limit_is_ignored(soft: float, in_force: float | None) -> None:
    ready = _prepare(b'["resize",[1]]', options=TaskOptions(soft_time_limit=soft))
    assert isinstance(ready, Runnable)
    assert (ready.settings.options.soft_time_limit, ready.settings.soft_limit_ns) == (in_force, (in_force or 0) * 10**9)


def test_invalid_options_of_other_producers_are_ignored() -> None:
    expires = b"9" * 400
    ready = _prepare(b'["id","q","resize",[1],{"options":{"expires":%b,"retries":-1}}]' % expires)
    assert isinstance(ready, Runnable)
    assert ready.settings.options == TaskOptions()
