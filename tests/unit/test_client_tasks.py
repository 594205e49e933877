"""The declaration of tasks, and the registry of tasks."""

import copy
import dataclasses
import functools
import inspect
import pickle
import pydoc
import re
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rota
from rota.client.task import Task
from rota.errors import DuplicateTask, InvalidArguments, InvalidName
from rota.tasks.options import TaskArguments, TaskOptions
from rota.tasks.registry import default_registry

pytestmark = pytest.mark.usefixtures("own_registry")


def add(a: int, b: int = 2) -> int:
    """Add."""
    return a + b


def elsewhere() -> Callable[..., Any]:
    def add() -> None: ...

    return add


def test_a_task_can_be_called_like_its_function() -> None:
    task = rota.task(add)
    assert task(1, b=5) == 6
    assert (task.__name__, task.__doc__, task.__module__) == ("add", "Add.", add.__module__)
    assert repr(task) == f"<rota task add on queue default: {add.__module__}.add>"


def test_a_task_is_found_by_its_name() -> None:
    task = rota.task(add)
    other = rota.task(name="sums.add", queue="sums")(elsewhere())
    assert default_registry.get("add") is task
    assert default_registry.get("sums.add") is other
    assert default_registry.get("unknown") is None
    assert "add" in default_registry
    assert list(default_registry) == [task, other]
    assert len(list(default_registry)) == 2
    assert [task.options.queue for task in default_registry] == ["default", "sums"]


def test_two_tasks_with_the_same_name_are_refused_with_both_locations() -> None:
    rota.task(add)
    with pytest.raises(DuplicateTask) as caught:
        rota.task(name="add")(elsewhere())
    assert f"{__name__}.add" in str(caught.value)
    assert f"{__name__}.elsewhere.<locals>.add" in str(caught.value)


def test_declaring_the_same_function_again_replaces_its_task() -> None:
    rota.task(name="add")(elsewhere())
    again = rota.task(name="add", retries=1)(elsewhere())
    assert default_registry.get("add") is again


def test_a_task_declared_from_a_coroutine_function_is_async() -> None:
    @rota.task(name="fetch")
    async def fetch(url: str) -> int:
        return len(url)

    @rota.task(name="plain")
    def plain() -> None: ...

    assert fetch.is_async
    assert not plain.is_async
    coroutine = fetch("abc")
    with pytest.raises(StopIteration) as stopped:
        coroutine.send(None)
    assert stopped.value.value == 3


def test_generators_and_other_objects_cannot_be_declared_as_tasks() -> None:
    def rows() -> Iterator[int]:
        yield 1

    async def pages() -> AsyncIterator[int]:
        yield 1

    for function in (rows, pages):
        with pytest.raises(TypeError, match="is a generator"):
            rota.task(function)
    for thing in (7, rota.task(add)):
        with pytest.raises(TypeError, match="takes a function"):
            rota.task(thing)  # type: ignore[arg-type]  # that is the claim
    with pytest.raises(InvalidName, match="task name 'send mail'"):
        rota.task(name="send mail")(add)


scale = rota.task(name="scale")(add)


def test_a_task_is_copied_and_pickled_by_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(default_registry, "_tasks", {"scale": scale})
    assert copy.copy(scale) is copy.deepcopy(scale) is pickle.loads(pickle.dumps(scale)) is scale
    default_registry._tasks.clear()
    with pytest.raises(LookupError, match="declares no task 'scale'"):
        pickle.loads(pickle.dumps(scale))


def test_help_shows_the_options_by_name_with_types_and_defaults() -> None:
    declared = " ".join(pydoc.plain(pydoc.render_doc(rota.task)).split())
    assert "queue: str = 'default', retries: int = 10, " in declared
    assert "time_limit: float | datetime.timedelta | None = None" in declared
    called = " ".join(pydoc.plain(pydoc.render_doc(rota.Task.using)).split())
    assert "delay: float | datetime.timedelta | None = None, at: datetime.datetime | None = None" in called
    assert set(inspect.signature(rota.task).parameters) == {"function", "name", *TaskArguments.__annotations__}


def test_the_docstring_of_task_lists_every_option_with_its_default() -> None:
    text = inspect.getdoc(rota.task) or ""
    listed = dict(re.findall(r"^\* `(\w+)` .*?^  Default: ([^,.\n]+)", text, re.MULTILINE | re.DOTALL))
    assert sorted(listed) == sorted(["name", *TaskArguments.__annotations__])
    defaults = {field.name: field.default for field in dataclasses.fields(TaskOptions)}
    plain = {name: default for name, default in defaults.items() if isinstance(default, bool | str | None)}
    written = {name: f'"{default}"' if isinstance(default, str) else str(default) for name, default in plain.items()}
    assert {name: listed[name] for name in written} == written


def test_arguments_are_bound_to_the_signature_without_a_call() -> None:
    def shrink(image_id: int, /, size: int, *, force: bool = False) -> None:
        raise AssertionError(image_id, size, force)

    task = rota.task(name="shrink")(shrink)
    assert task.bind([7], {"size": 3}) == ((7, 3), {})
    assert task.bind([7, 3], {"force": True}) == ((7, 3), {"force": True})
    for args, kwargs, what in (
        ([], {}, "missing a required argument"),
        ([1, 2, 3], {}, "too many positional arguments"),
        ([1, 2], {"colour": 1}, "unexpected keyword argument 'colour'"),
    ):
        with pytest.raises(InvalidArguments) as caught:
            task.bind(args, kwargs)
        assert str(caught.value).startswith("the arguments do not fit shrink(image_id: int, /, size: int")
        assert what in str(caught.value)


def none_needed() -> None: ...
def two_needed(a: int, b: int, /) -> None: ...
def one_of_two(a: int, b: int = 2) -> None: ...
def any_number(a: int, *rest: int) -> None: ...
def keyword_only(a: int, *, b: int) -> None: ...
def keyword_default(a: int, *rest: int, b: int = 2, **others: int) -> None: ...


@pytest.mark.parametrize(
    "function",
    [none_needed, two_needed, one_of_two, any_number, keyword_only, keyword_default],
    ids=lambda f: f.__name__,
)
@given(st.lists(st.integers(), max_size=4), st.dictionaries(st.sampled_from("abc"), st.integers(), max_size=2))
def test_arguments_must_fit_the_signature_of_the_task(
    function: Callable[..., None], args: list[int], kwargs: dict[str, int]
) -> None:
    task = Task(function, "fit", TaskOptions())
    try:
        bound = inspect.signature(function).bind(*args, **kwargs)
    except TypeError as error:
        with pytest.raises(InvalidArguments, match=re.escape(str(error))):
            task.bind(args, kwargs)
    else:
        assert task.bind(args, kwargs) == (bound.args, bound.kwargs)


def test_a_call_created_from_a_task_equals_one_created_by_hand() -> None:
    called, made = rota.task(add).call(1, b=2), rota.Call("add", (1,), {"b": 2})
    assert called == made
    assert repr(called) == repr(made)
    assert dataclasses.asdict(called) == dataclasses.asdict(made)
    assert dataclasses.replace(called, queue="q") == rota.Call("add", (1,), {"b": 2}, queue="q")
    assert pickle.loads(pickle.dumps(called)) == made
    with pytest.raises(dataclasses.FrozenInstanceError):
        called.queue = "q"  # type: ignore[misc]  # that is the claim


def test_a_task_whose_signature_is_unknown_accepts_any_arguments() -> None:
    task = rota.task(name="update")(dict.update)
    assert task.bind([1, 2], {"a": 3}) == ((1, 2), {"a": 3})


Anything = Callable[..., Any]


def injecting(function: Anything) -> Anything:
    @functools.wraps(function)
    def wrapper(image_id: int) -> Any:
        return function("database", image_id)

    return wrapper


def passing_on(function: Anything) -> Anything:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


class Resizer:
    @passing_on
    def shrink(self, image_id: int) -> None: ...


def store(database: str, image_id: int) -> None: ...


@pytest.mark.parametrize(
    ("function", "fits"),
    [
        (store, ["database", 7]),
        (passing_on(store), ["database", 7]),
        (injecting(store), [7]),
        (passing_on(injecting(store)), [7]),
        (injecting(passing_on(store)), [7]),
        (Resizer().shrink, [7]),
        (functools.lru_cache(store), ["database", 7]),
    ],
)
def test_a_task_uses_the_signature_of_its_outermost_decorator(function: Anything, fits: list[Any]) -> None:
    task = rota.task(name="resize")(function)
    assert task.bind(fits, {}) == (tuple(fits), {})
    with pytest.raises(InvalidArguments, match="too many positional"):
        task.bind([*fits, "more"], {})


def test_attributes_of_the_function_do_not_become_task_attributes() -> None:
    def tagged() -> None: ...

    tagged.__dict__.update(name="other", options=None, function=None)
    task = rota.task(name="tagged")(tagged)
    assert (task.name, task.options.queue, task.function) == ("tagged", "default", tagged)


def test_options_of_a_call_may_have_the_same_names_as_its_parameters() -> None:
    @rota.task(name="move")
    def move(queue: str, delay: int = 0) -> None: ...

    call = move.using(queue="bulk", delay=60, id="m-1").call("a", delay=5)
    assert (call.name, call.args, call.kwargs) == ("move", ("a",), {"delay": 5})
    assert (call.queue, call.delay, call.id) == ("bulk", 60, "m-1")
    assert move.call("a").queue is None
