"""Task arguments with annotated types. Each value arrives unchanged, or the call fails with a reason."""

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, NewType, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rota
import rota.testing
from rota.client.preparation import prepare
from rota.client.task import Task
from rota.errors import InvalidArguments
from rota.protocol.body import decode_body
from rota.tasks.arguments import kept_result
from rota.tasks.call import Call
from rota.tasks.options import TaskOptions
from rota.tasks.registry import Registry, default_registry

if TYPE_CHECKING:
    from nowhere import Hidden  # type: ignore[import-not-found]  # noqa: F401 - what only a type checker may look up

NOW = datetime(2026, 3, 4, 5, 6, 7, 89, tzinfo=UTC)
KIB = 256
UserId = NewType("UserId", UUID)


class Colour(Enum):
    RED = "red"


class Level(IntEnum):
    LOW = 1


@dataclass
class Item:
    count: int
    price: Decimal = Decimal(1)


@dataclass
class Order:
    id: UUID
    items: list[Item] = field(default_factory=list)


@dataclass
class Positive:
    value: int

    def __post_init__(self) -> None:
        if self.value <= 0:
            raise ValueError("must be above 0")


class Spot(NamedTuple):
    x: int
    at: date


class Shape(TypedDict):
    kind: str
    since: date


class Stamp(msgspec.Struct):
    code: bytes
    seen: tuple[int, ...] = ()


class Guest(pydantic.BaseModel):
    name: str
    since: datetime | None = None


class Plain:
    def __repr__(self) -> str:
        return "Plain()"

    """A class for which there is no conversion."""


class Later(datetime):
    """A subclass like those of libraries that fake the time."""


def task_of(function: Callable[..., Any], **options: Any) -> Task[..., Any]:
    return Task(function, "ship", TaskOptions(**options))


def taking(annotation: Any, **options: Any) -> Task[..., Any]:
    def ship(it: Any) -> None: ...

    ship.__annotations__["it"] = annotation
    return task_of(ship, **options)


def sent(task: Task[..., Any], *args: Any, **kwargs: Any) -> tuple[list[Any], dict[str, Any]]:
    registry = Registry()
    registry.add(task)
    body = decode_body(prepare(Call("ship", args, kwargs), registry, KIB).body)
    return body.args, body.kwargs


def received(task: Task[..., Any], *args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    wire = sent(task, *args, **kwargs)
    return task.received(*json.loads(json.dumps(wire)))


ARRIVE: list[tuple[Any, Any]] = [
    (datetime, NOW),
    (datetime, NOW.astimezone(timezone(timedelta(hours=2)))),
    (date, NOW.date()),
    (time, time(1, 2, 3)),
    (timedelta, timedelta(days=-1, microseconds=3)),
    (UUID, UUID("a7a5b330-ef4d-4d08-9eff-5abb5ccb618a")),
    (Decimal, Decimal("1.10")),
    (Colour, Colour.RED),
    (Level, Level.LOW),
    (Path, Path("/tmp/a")),
    (PurePosixPath, PurePosixPath("a")),
    (bytes, b"\0\xff"),
    (set[int], {1, 2}),
    (frozenset[str], frozenset({"a"})),
    (tuple[int, str], (1, "a")),
    (tuple[date, ...], (NOW.date(), NOW.date())),
    (tuple, (1, [2])),
    (dict[int, str], {1: "a"}),
    (dict[UUID, date], {UUID(int=1): NOW.date()}),
    (Order, Order(UUID(int=1), [Item(1, Decimal("2.50"))])),
    (list[Order], [Order(UUID(int=1)), Order(UUID(int=2))]),
    (Spot, Spot(1, NOW.date())),
    (Shape, Shape(kind="a", since=NOW.date())),
    (Stamp, Stamp(b"a", (1, 2))),
    (Guest, Guest(name="g", since=NOW)),
    (list[Guest], [Guest(name="g")]),
    (UserId, UserId(UUID(int=3))),
    (date | None, None),
    (date | int, NOW.date()),
    (date | int, 7),
    (Order | None, Order(UUID(int=1))),
    (Sequence[date], [NOW.date()]),
    (Annotated[int, msgspec.Meta(ge=1)], 1),
    ("UUID", UUID(int=4)),
    ("list[datetime] | None", [NOW]),
    (tuple[float, float], (1, 2.5)),
    (tuple[object, ...], (1, "a", [None])),
]


@pytest.mark.parametrize(("annotation", "value"), ARRIVE, ids=str)
def test_values_arrive_as_their_annotated_types_unchanged(annotation: Any, value: Any) -> None:
    [arrived], _ = received(taking(annotation), value)
    assert (arrived, type(arrived)) == (value, type(value))


REFUSED: list[tuple[Any, Any, str]] = [
    (
        datetime,
        "2026-01-01",
        "it is refused: invalid RFC3339 encoded datetime (it is annotated as datetime.datetime, got str)",
    ),
    (datetime, NOW.replace(tzinfo=None), "it is a datetime without a time zone"),
    (datetime, NOW.date(), "it is refused: invalid RFC3339"),
    (list[datetime], [NOW, NOW.replace(tzinfo=None)], "it[1] is a datetime without a time zone"),
    (UUID, str(UUID(int=1)), "it is of type str, and would arrive as UUID"),
    (Decimal, 1.5, "it is of type float, and would arrive as Decimal"),
    (Decimal, Decimal("nan"), "it is NaN, which is not a number"),
    (Colour, "red", "it is of type str, and would arrive as Colour"),
    (Level, 1, "it is of type int, and would arrive as Level"),
    (tuple[int, int], [1, 2], "it is of type list, and would arrive as tuple"),
    (tuple[int, int], (1, 2, 3), "it is refused: expected array of length 2, got 3"),
    (tuple[int, int], (1, "2"), "it[1] is refused: expected int, got str"),
    (tuple[int, ...], (True,), "it[0] is refused: expected int, got bool"),
    (set[int], [1], "it is of type list, and would arrive as set"),
    (dict[int, str], {"1": "a"}, "it would arrive with different keys"),
    (list[date], (NOW.date(),), "it is of type tuple, and would arrive as list"),
    (Path, "a", "it is of type str, and would arrive as PosixPath"),
    (Order, {"id": str(UUID(int=1))}, "it is of type dict, and would arrive as Order"),
    (
        Order,
        Order(UUID(int=1), [Item("1")]),  # type: ignore[arg-type]  # that is the claim
        "it.items[0].count is refused: expected int, got str (it is annotated as ",
    ),
    (Order, Order(UUID(int=1), (Item(1),)), "it.items is of type tuple, and would arrive as list"),  # type: ignore[arg-type]  # likewise
    (Guest, {"name": "g"}, "it is of type dict, and would arrive as Guest"),
    (Shape, {"kind": "a", "since": NOW.date(), "more": 1}, "it would arrive with different keys"),
    (tuple[float], (float("nan"),), "it[0] is nan, which is not a number"),
    (dict[int, object], {1: NOW}, "it[1] is of type datetime, and would arrive as str"),
    (tuple[object], (Plain(),), "it cannot be written as JSON: TypeError: there is no conversion for Plain"),
    (Annotated[int, msgspec.Meta(ge=1)], 0, "it is refused: expected int >= 1"),
    (
        int,
        (1,),
        (
            "it is of type tuple (pass a list, because a tuple would arrive as a list); arguments must be JSON, "
            "unless the parameter"
        ),
    ),
    (int, NOW, "it is of type datetime (pass its .isoformat()); arguments must be JSON, unless the parameter"),
    (
        str | date,
        NOW.date(),
        "but that type cannot be used for conversion: Type unions may not contain more than one str-like",
    ),
    (
        "Hidden",
        NOW,
        "it is annotated as Hidden, but that annotation cannot be evaluated: NameError: name 'Hidden' is not defined",
    ),
    (Plain, NOW, "but there is no conversion for Plain"),
    (list[Plain], NOW, "but there is no conversion for Plain"),
]


@pytest.mark.parametrize(("annotation", "value", "message"), REFUSED, ids=str)
def test_values_that_the_conversion_would_change_are_refused(annotation: Any, value: Any, message: str) -> None:
    with pytest.raises(InvalidArguments) as caught:
        sent(taking(annotation), value)
    assert str(caught.value).startswith("ship: it")
    assert message in str(caught.value)


LEFT_ALONE: list[Any] = [
    *(None, int, "int", str | None, list[int], dict[str, list[float]], Any, object, Literal["a"], list[Any], dict),
    *(Sequence[int], Annotated[int, "of people"], Plain, "Hidden", "no expression", str | date, int | Plain),
]


@pytest.mark.parametrize("annotation", LEFT_ALONE, ids=str)
def test_arguments_with_plain_or_unusable_annotations_are_not_converted(annotation: Any) -> None:
    task = taking(annotation)
    assert task.typed is None
    assert received(task, "7") == (("7",), {})


def test_every_kind_of_parameter_is_converted_by_its_own_annotation() -> None:
    def ship(a: date, /, b: date, *more: UUID, c: date, plain: int, old: date = None, **others: Path) -> None: ...  # type: ignore[assignment]  # noqa: RUF013 - as was once the custom

    day, one = NOW.date(), UUID(int=1)
    task = task_of(ship)
    args, kwargs = (day, day, one, one), {"c": day, "plain": 3, "old": None, "a": Path("x")}
    assert received(task, *args, **kwargs) == (args, kwargs)
    assert received(task, day, b=day, c=day, plain=1) == ((day, day), {"c": day, "plain": 1})
    for wrong, place in (((day, day, "x"), "more[0]"), ((day, 1), "b")):
        with pytest.raises(InvalidArguments, match=f"ship: {place}".replace("[", r"\[")):
            sent(task, *wrong, c=day, plain=1)
    with pytest.raises(InvalidArguments, match=r"ship: others\.z is of type str, and would arrive as PosixPath"):
        sent(task, day, day, c=day, plain=1, z="x")
    with pytest.raises(InvalidArguments, match="missing a required"):
        sent(task, day)


def test_a_worker_refuses_arguments_that_do_not_fit_with_their_path() -> None:
    for annotation, wire, message in (
        (Order, {"id": "x"}, "ship: it.id is refused: invalid UUID"),
        (Order, {"id": str(UUID(int=1)), "items": [{"count": 1.5}]}, "it.items[0].count is refused: expected int, got"),
        (datetime, "2026-01-01T00:00:00", "it is a datetime without a time zone"),
        (Positive, {"value": 0}, "it is refused: must be above 0"),
        (Guest, {"name": 1}, "it is refused: name: Input should be a valid string"),
    ):
        with pytest.raises(InvalidArguments) as caught:
            taking(annotation).received([wire], {})
        assert message in str(caught.value)


def test_subclasses_of_datetime_are_accepted() -> None:
    assert received(taking(datetime), Later.now(UTC))[0][0] is not None


@given(
    st.datetimes(timezones=st.just(UTC)),
    st.timedeltas(),
    st.decimals(allow_nan=False, allow_infinity=False),
    st.frozensets(st.integers(-(2**70), 2**70)),
)
def test_any_datetime_timedelta_decimal_or_set_arrives_unchanged(
    at: datetime, takes: timedelta, price: Decimal, ids: frozenset[int]
) -> None:
    def ship(at: datetime, takes: timedelta, price: Decimal, ids: frozenset[int]) -> None: ...

    assert received(task_of(ship), at, takes, price, ids) == ((at, takes, price, ids), {})


def key(task: Task[..., Any], *args: Any) -> str:
    registry = Registry()
    registry.add(task)
    return prepare(Call("ship", args), registry, KIB).unique_key


def test_a_unique_key_is_computed_from_converted_arguments() -> None:
    one, other = {0, 8}, {8, 0}
    assert list(one) != list(other)
    assert key(taking(set[int], unique=True), one) == key(taking(set[int], unique=True), other)
    by_id = taking(Order, unique=lambda order: str(order.id))
    assert key(by_id, Order(UUID(int=1))) == key(by_id, Order(UUID(int=1), [Item(1)])) != key(by_id, Order(UUID(int=2)))
    loose = taking(int, unique=True, pydantic=True)
    assert key(loose, "7") == key(loose, 7)


def test_pydantic_checks_and_converts_all_arguments_by_its_own_rules() -> None:
    task = taking(Annotated[int, pydantic.Field(ge=3)], pydantic=True)
    assert received(task, "7") == ((7,), {})
    with pytest.raises(InvalidArguments, match="it is refused: Input should be greater than or equal to 3"):
        sent(task, 2)
    with pytest.raises(InvalidArguments, match=r"it\.since is refused: Input should be a valid datetime"):
        taking(Guest, pydantic=True).received([{"name": "g", "since": "x"}], {})
    with pytest.raises(TypeError, match="pydantic cannot work with it, annotated as Hidden: NameError"):
        _ = taking("Hidden", pydantic=True).typed


def test_a_result_is_stored_and_read_as_its_annotated_type() -> None:
    def ship() -> tuple[datetime, set[int]]: ...  # type: ignore[empty-body]  # only its annotation is looked at

    typed = task_of(ship).typed
    assert typed is not None
    encoded = kept_result((NOW, {1}), 60, 64, typed)
    assert encoded.result is not None
    assert typed.load_result(json.loads(encoded.result)) == (NOW, {1})
    assert kept_result(("x", {1}), 60, 64, typed).refused == "result[0] is refused: invalid RFC3339 encoded datetime"
    assert kept_result((1, 2), 60, 64).result == b"[1,2]"


def test_schedules_convert_arguments_by_their_annotations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(default_registry, "_tasks", {})

    def ship(it: date, kind: Colour) -> None: ...

    made = rota.task(name="ship", every=60, schedules=[rota.Every(60, args=[NOW.date()], kwargs={"kind": Colour.RED})])
    with pytest.raises(InvalidArguments, match="missing a required argument"):
        made(ship)
    made = rota.task(name="ship", schedules=[rota.Every(60, args=[NOW.date()], kwargs={"kind": Colour.RED})])
    [schedule] = made(ship).schedules
    assert (schedule.args, schedule.kwargs) == (("2026-03-04",), {"kind": "red"})


def test_capture_and_eager_convert_typed_arguments_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(default_registry, "_tasks", {})

    def ship(it: date) -> tuple[date, ...]:
        return (it, it)

    declared = rota.task(name="ship", result_ttl=60)(ship)
    with rota.testing.capture() as captured:
        declared.enqueue(NOW.date())
    captured.assert_enqueued(declared, args=[NOW.date()])
    with rota.testing.eager():
        assert declared.enqueue(NOW.date()).result() == (NOW.date(), NOW.date())
        with pytest.raises(InvalidArguments, match="ship: it is refused"):
            declared.enqueue("soon")  # type: ignore[arg-type]  # that is the claim


def test_plain_tasks_import_no_conversion_library() -> None:
    program = (
        "import rota, sys\n"
        "@rota.task\n"
        "def plain(a: int, b: 'str | None' = None): ...\n"
        "assert plain.typed is None\n"
        "print([name for name in ('msgspec', 'uuid', 'decimal', 'pydantic') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "[]\n"
