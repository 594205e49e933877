"""The conversion of an enqueue call to the arguments of the script."""

import json
import uuid
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any

import pytest

import rota
from rota.client.preparation import prepare
from rota.errors import InvalidArguments, InvalidName, PayloadTooLarge
from rota.protocol.new_tasks import NewTask
from rota.tasks.call import Call
from rota.tasks.registry import default_registry

KB = 256


pytestmark = pytest.mark.usefixtures("own_registry")


@pytest.fixture(name="resize")
def _resize() -> rota.Task[[int, str], None]:
    def resize(image_id: int, size: str = "s") -> None: ...

    return rota.task(name="resize", queue="images", unique=False)(resize)


def prepared(call: Call[Any]) -> NewTask:
    return prepare(call, default_registry, KB)


def by_name(**options: Any) -> Call[Any]:
    return Call("send", [1], queue="email", **options)


def test_a_call_by_name_without_options_has_a_body_of_four_elements(resize: object) -> None:
    del resize
    task = prepared(Call("send", (1, [2, 3]), queue="email", id="id-1"))
    assert task == NewTask("id-1", "email", b'["id-1","email","send",[1,[2,3]]]', foreign="send")


def test_each_call_of_a_task_has_a_new_id() -> None:
    ids = [prepared(by_name()).id for _ in range(500)]
    assert len(set(ids)) == 500
    for fresh in ids:
        read = uuid.UUID(fresh)
        assert (str(read), read.version, read.variant) == (fresh, 4, uuid.RFC_4122)


def test_a_declared_task_provides_the_queue_and_the_signature_of_a_call(resize: rota.Task[[int, str], None]) -> None:
    task = prepared(resize.call(7, "l"))
    assert task.queue == "images"
    assert json.loads(task.body)[1:] == ["images", "resize", [7, "l"]]
    assert prepared(Call("resize", [7], queue="bulk")).queue == "bulk"
    with pytest.raises(InvalidArguments, match="do not fit resize"):
        prepared(Call("resize", [1, 2, 3]))


def test_arguments_are_sent_as_the_caller_wrote_them(resize: rota.Task[[int, str], None]) -> None:
    del resize
    by_keyword = prepared(Call("resize", kwargs={"size": "l", "image_id": 7}))
    assert json.loads(by_keyword.body)[3:] == [[], {"kwargs": {"size": "l", "image_id": 7}}]
    mixed = prepared(Call("resize", range(7, 8), MappingProxyType({"size": "l"})))
    assert json.loads(mixed.body)[3:] == [[7], {"kwargs": {"size": "l"}}]


def test_a_call_of_an_undeclared_task_must_name_a_queue() -> None:
    with pytest.raises(
        InvalidName,
        match="send: no task with that name is declared in this process: if a fleet declares this task, pass its queue",
    ):
        prepared(Call("send", [1]))


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (Call("se{nd", queue="q"), "task name 'se{nd'"),
        (Call("send", queue="{q}"), "queue name '{q}'"),
        (Call("send", queue="q-delayed"), "may not end in '-delayed'"),
        (Call("send", queue="q", id="a b"), "id 'a b'"),
        (Call("send", queue="q", id="x" * 129), "1 to 128"),
        (Call("send", queue="q", id=7), "id must be a string, got 7"),  # type: ignore[arg-type]  # that is the claim
    ],
)
def test_calls_with_invalid_task_names_queues_or_ids_are_refused(call: Call[Any], what: str) -> None:
    with pytest.raises(InvalidName) as caught:
        prepared(call)
    assert what in str(caught.value)


@pytest.mark.parametrize(
    ("options", "due"),
    [
        ({}, ""),
        ({"delay": 0}, ""),
        ({"delay": 1.5}, "+1500000"),
        ({"delay": timedelta(minutes=1)}, "+60000000"),
        ({"at": datetime(2030, 1, 1, tzinfo=UTC)}, "@1893456000000000"),
        ({"at": datetime(1999, 1, 1, tzinfo=UTC)}, "@915148800000000"),
    ],
)
def test_delay_and_at_set_the_due_time(options: dict[str, Any], due: str) -> None:
    assert prepared(by_name(**options)).due == due


def test_contradictory_options_of_a_call_are_refused() -> None:
    with pytest.raises(ValueError, match="send: pass either delay or at, not both"):
        prepared(by_name(delay=1, at=datetime.now(UTC)))
    with pytest.raises(ValueError, match="has no time zone"):
        prepared(by_name(at=datetime(2030, 1, 1)))  # noqa: DTZ001 - a naive datetime is the point of the test
    with pytest.raises(ValueError, match="unique_for has no effect without unique=True"):
        prepared(by_name(unique_for=5))


def test_a_task_scheduled_before_1970_is_due_immediately() -> None:
    assert prepared(by_name(at=datetime(1931, 1, 1, tzinfo=UTC))).due == ""


def test_the_body_contains_the_options_of_the_call() -> None:
    task = prepared(by_name(retries=2, expires=timedelta(minutes=1), result_ttl=5))
    assert json.loads(task.body)[4] == {"options": {"retries": 2, "expires": 60.0, "result_ttl": 5.0}}
    with pytest.raises(ValueError, match="retries must be 0 or more"):
        prepared(by_name(retries=-1))


@pytest.mark.parametrize(
    "options",
    [
        {"delay": 1_795_252_610},
        {"delay": timedelta(days=3654)},
        {"at": datetime.now(UTC) + timedelta(days=3654)},
    ],
)
def test_a_due_time_over_ten_years_ahead_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(
        ValueError, match=r"send: (delay|at)=.* is more than ten years ahead: was it computed in milliseconds"
    ):
        prepared(by_name(**options))


def test_a_due_time_nine_years_ahead_is_accepted() -> None:
    assert prepared(by_name(delay=timedelta(days=3285))).due == f"+{3285 * 86_400 * 1_000_000}"


def test_a_payload_over_the_limit_is_refused_with_its_size_and_the_limit() -> None:
    with pytest.raises(PayloadTooLarge, match=r"send: the body of the task has 2,0\d\d bytes, but the limit is 1 KiB"):
        prepare(Call("send", ["x" * 2000], queue="q"), default_registry, 1)


def test_arguments_that_are_not_json_are_refused() -> None:
    with pytest.raises(InvalidArguments, match=r"send: args\[0\] is of type object"):
        prepared(Call("send", [object()], queue="q"))


class TestUniqueKeys:
    def test_a_call_has_no_unique_key_by_default(self, resize: rota.Task[[int, str], None]) -> None:
        assert prepared(resize.call(7, "s")).unique_key == ""

    def test_the_unique_key_depends_on_queue_name_and_arguments(self, resize: rota.Task[[int, str], None]) -> None:
        unique = resize.using(unique=True)
        keys = {
            prepared(call).unique_key
            for call in (
                unique.call(7, "s"),
                unique.call(8, "s"),
                unique.call(7, "l"),
                resize.using(unique=True, queue="bulk").call(7, "s"),
                Call("other", [7, "s"], queue="images", unique=True),
            )
        }
        assert len(keys) == 5
        assert "" not in keys

    def test_positional_and_keyword_arguments_result_in_the_same_unique_key(
        self, resize: rota.Task[[int, str], None]
    ) -> None:
        positional = prepared(resize.using(unique=True).call(7, "s"))
        by_keyword = prepared(Call("resize", kwargs={"size": "s", "image_id": 7}, unique=True))
        assert positional.unique_key == by_keyword.unique_key

    def test_a_callable_can_compute_the_unique_key(self) -> None:
        @rota.task(name="greet", unique=lambda user_id, _: user_id, unique_for=timedelta(seconds=2))
        def greet(user_id: int, text: str) -> None: ...

        first, second, third = (prepared(greet.call(*args)) for args in ((1, "a"), (1, "b"), (2, "a")))
        assert first.unique_key == second.unique_key != third.unique_key
        assert first.hold_ms == 2000

    def test_a_unique_key_that_is_not_json_is_refused(self) -> None:
        with pytest.raises(InvalidArguments, match="the unique key of send"):
            prepared(by_name(unique=lambda _: object()))

    def test_a_call_can_turn_uniqueness_off(self) -> None:
        @rota.task(name="once", unique=True, unique_for=3)
        def once() -> None: ...

        assert prepared(once.call()).hold_ms == 3000
        off = prepared(once.using(unique=False).call())
        assert (off.unique_key, off.hold_ms) == ("", 0)
