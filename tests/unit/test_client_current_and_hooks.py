"""The current task, and the application's hooks."""

import dataclasses
import functools
from collections.abc import Generator, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

import rota
from rota.errors import NoCurrentTask
from rota.tasks.hooks import CurrentTask, Hooks, default_hooks, reset_running, set_running

DUE = datetime(2024, 1, 1, tzinfo=UTC)
LATER = datetime(2024, 1, 2, tzinfo=UTC)
TASK = CurrentTask("id-1", "resize", "images", "retry", 2, 0, DUE, 0.25)


@pytest.fixture(name="log")
def _log() -> Iterator[list[str]]:
    lists: list[list[Any]] = [getattr(default_hooks, field.name) for field in dataclasses.fields(Hooks)]
    kept = [list(hooks) for hooks in lists]
    for hooks in lists:
        hooks.clear()
    yield []
    for hooks, before in zip(lists, kept, strict=True):
        hooks[:] = before


def test_current_task_raises_outside_a_task() -> None:
    with pytest.raises(NoCurrentTask, match="no task runs here"):
        rota.current_task()


def test_current_task_returns_the_running_task() -> None:
    outer = set_running(lambda: TASK)
    assert rota.current_task() is TASK
    other = CurrentTask("id-2", "f", "q", "immediate", 1, 0, DUE, 0.0)
    inner = set_running(lambda: other)
    assert rota.current_task() is other
    reset_running(inner)
    assert rota.current_task() is TASK
    reset_running(outer)
    with pytest.raises(NoCurrentTask):
        rota.current_task()


def test_a_heartbeat_of_the_current_task_extends_its_deadline() -> None:
    task = CurrentTask("id-1", "f", "q", "immediate", 1, 0, DUE, 0.0, DUE, extend=lambda: LATER)
    task.heartbeat()
    assert task.deadline == LATER
    TASK.heartbeat()
    assert TASK.deadline is None


def test_declaring_a_hook_again_replaces_it_without_changing_the_order(log: list[str]) -> None:
    def declare(word: str) -> None:
        @rota.on_worker_start
        def first() -> None:
            log.append(word)

    declare("old")
    rota.on_worker_start(lambda: log.append("second"))
    declare("new")
    for hook in default_hooks.worker_start:
        hook()
    assert log == ["second", "new"]


def test_each_hook_decorator_registers_its_function_in_its_own_list(log: list[str]) -> None:
    del log

    @rota.on_worker_stop
    def stop() -> None: ...

    @rota.on_failure
    def failed(task: CurrentTask, failure: rota.AttemptFailure) -> None: ...

    @rota.on_dead
    def dead(task: CurrentTask, reason: str) -> None: ...

    @rota.around_task
    def around(_: CurrentTask) -> Generator[None, None, None]:
        yield

    assert default_hooks == Hooks([], [stop], [around], [failed], [dead])


def test_around_hooks_nest_in_the_order_of_their_declaration(log: list[str]) -> None:
    @rota.around_task
    def outer(task: CurrentTask) -> Generator[None, None, None]:
        log.append(f"outer begins {task.id}")
        yield
        log.append("outer ends")

    @rota.around_task
    def inner(_: CurrentTask) -> Generator[None, None, None]:
        log.append("inner begins")
        yield
        log.append("inner ends")

    with default_hooks.wrapped(TASK):
        log.append("task")
    assert log == ["outer begins id-1", "inner begins", "task", "inner ends", "outer ends"]


def test_an_exception_of_a_task_passes_through_its_around_hooks(log: list[str]) -> None:
    @rota.around_task
    def watch(_: CurrentTask) -> Generator[None, None, None]:
        try:
            yield
        except KeyError:
            log.append("seen")
            raise

    with pytest.raises(KeyError), default_hooks.wrapped(TASK):
        raise KeyError
    assert log == ["seen"]


def test_an_around_hook_that_does_not_yield_raises_an_error(log: list[str]) -> None:
    del log

    @rota.around_task
    def never(_: CurrentTask) -> Generator[None, None, None]:
        yield from ()

    with pytest.raises(RuntimeError, match="didn't yield"), default_hooks.wrapped(TASK):
        pass


def test_a_coroutine_or_generator_function_is_refused_as_a_hook(log: list[str]) -> None:
    async def connect() -> None:
        log.append("never")

    def connections() -> Generator[None, None, None]:
        yield

    for hook in (connect, connections, functools.partial(log.append, "partial")):
        with pytest.raises(TypeError, match="a hook must be a plain function"):
            rota.on_worker_start(hook)
    with pytest.raises(TypeError, match="takes a generator function"):
        rota.around_task(lambda _: connections())
    assert default_hooks == Hooks()
