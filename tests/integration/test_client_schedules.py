"""The schedule methods of a client, `client.schedules`, on a real server."""

from datetime import UTC, datetime, timedelta

import pytest

import rota
from rota.client.blocking.client import Client
from rota.protocol.outcome import Done
from rota.protocol.schedule_store import DeclaredSchedule, ScheduleStore
from rota.protocol.task_states import State
from rota.schedules.schedule import CronRule, Schedule, encode_schedule
from rota.tasks.registry import Registry
from support.protocol import Fleet, one_tier
from support.servers import Server

NIGHTLY = rota.Cron("0 3 * * *", timezone="Europe/Zurich", args=[7], queue="q")
DECLARED = Schedule("hourly", "report", CronRule("0 * * * *"), "q")

TEXT = encode_schedule(DECLARED)


@pytest.fixture(autouse=True)
def report(monkeypatch: pytest.MonkeyPatch) -> rota.Task[[int], None]:
    """Declare a task in this process, and return it."""
    registry = Registry()
    monkeypatch.setattr("rota.client.task.default_registry", registry)
    monkeypatch.setattr("rota.client.schedule_steps.default_registry", registry)

    @rota.task(name="report", queue="mail")
    def report(shop: int) -> None: ...

    return report


def declare(fleet: Fleet) -> None:
    declared = DeclaredSchedule(DECLARED.name, TEXT)
    fleet.run(ScheduleStore(fleet.keys.namespace).declare(60_000, [declared]))


def test_a_schedule_is_put_shown_changed_and_removed(client: Client, report: rota.Task[[int], None]) -> None:
    assert client.schedules.list() == []
    assert client.schedules.put("nightly", report, rota.Cron("0 3 * * *", timezone="Europe/Zurich", args=[7])) == "new"

    [shown] = client.schedules.list()
    assert (shown.name, shown.task, shown.queue, shown.args, shown.source) == (
        "nightly",
        "report",
        "mail",
        (7,),
        "client",
    )
    assert (shown.cron, shown.timezone, shown.every) == ("0 3 * * *", "Europe/Zurich", None)
    assert (shown.last_at, shown.paused_at, shown.error) == (None, None, "")
    assert shown.next_at == shown.due_at == client.schedules.upcoming("nightly", 1)[0]
    assert shown.next_at is not None
    assert datetime.now(UTC) - timedelta(minutes=1) < shown.next_at < datetime.now(UTC) + timedelta(days=1, hours=1)

    assert client.schedules.put("nightly", report, rota.Cron("0 3 * * *", timezone="Europe/Zurich", args=[7])) == "same"
    assert client.schedules.put("nightly", "other", rota.Every(timedelta(minutes=5), queue="q")) == "changed"
    changed = client.schedules.get("nightly")
    assert changed is not None
    assert (changed.task, changed.queue, changed.every, changed.cron) == ("other", "q", 300, "")

    assert client.schedules.remove("nightly")
    assert not client.schedules.remove("nightly")
    assert client.schedules.get("nightly") is None


def test_more_than_500_schedules_are_all_listed(client: Client) -> None:
    for number in range(501):
        client.schedules.put(f"s{number}", "t", rota.Every(60 + number, queue="q"))

    found = client.schedules.list()

    assert {each.name for each in found} == {f"s{number}" for number in range(501)}


def test_a_paused_schedule_is_marked_and_has_no_next_occurrence(client: Client) -> None:
    client.schedules.put("nightly", "report", NIGHTLY)

    assert client.schedules.pause("nightly")
    assert not client.schedules.pause("nightly")
    paused = client.schedules.get("nightly")
    assert paused is not None
    assert (paused.next_at, paused.due_at) == (None, None)
    assert paused.paused_at is not None
    assert len(client.schedules.upcoming("nightly")) == 10

    assert client.schedules.resume("nightly")
    assert not client.schedules.resume("nightly")
    resumed = client.schedules.get("nightly")
    assert resumed is not None
    assert resumed.paused_at is None
    assert resumed.next_at is not None


def test_run_now_enqueues_unless_an_earlier_run_has_not_ended(client: Client, fleet: Fleet) -> None:
    client.schedules.put("nightly", "report", NIGHTLY)
    client.schedules.pause("nightly")

    first = client.schedules.run_now("nightly")
    fleet.promote()
    second = client.schedules.run_now("nightly")

    assert first.id.startswith("nightly:")
    assert not first.duplicate
    assert (second.id, second.duplicate) == (first.id, True)
    owner = fleet.register()
    [claim] = fleet.turn(owner, one_tier("q")).claims
    assert (claim.entry.id, claim.entry.kind.label) == (first.id, "periodic")
    assert client.status(first.id, args=True).args == [7]
    fleet.turn(owner, one_tier("q"), (claim, Done()), limit=0)
    assert first.status().state is State.DONE
    assert not client.schedules.run_now("nightly").duplicate


def test_a_client_can_pause_and_run_declared_schedules_but_not_change_them(client: Client, fleet: Fleet) -> None:
    declare(fleet)

    with pytest.raises(rota.ScheduleDeclared, match="'hourly' is declared in the code or the configuration of a node"):
        client.schedules.put("hourly", "report", rota.Every(60, args=[1]))
    with pytest.raises(rota.ScheduleDeclared):
        client.schedules.remove("hourly")

    assert client.schedules.pause("hourly")
    assert not client.schedules.run_now("hourly").duplicate
    [shown] = client.schedules.list()
    assert (shown.name, shown.source) == ("hourly", "code")


def test_invalid_schedules_are_refused_before_anything_is_sent(
    client: Client, server: Server, report: rota.Task[[int], None]
) -> None:
    put = client.schedules.put
    with pytest.raises(rota.InvalidName, match=r'elsewhere: .*: pass the queue, for example queue="default"'):
        put("nightly", "elsewhere", rota.Every(60))
    with pytest.raises(rota.InvalidArguments, match="shop"):
        put("nightly", report, rota.Every(60))
    with pytest.raises(rota.InvalidArguments, match="shop"):
        put("nightly", "report", rota.Every(60))
    with pytest.raises(rota.InvalidName, match="the name of a schedule 'two words'"):
        put("two words", report, rota.Every(60, args=[1]))
    with pytest.raises(ValueError, match="a name has 1 to 100 of the characters"):
        put("n" * 101, report, rota.Every(60, args=[1]))
    with pytest.raises(TypeError, match=r"a schedule must be rota.Cron\(...\) or rota.Every"):
        put("a", report, "* * * * *")  # type: ignore[arg-type]  # the fault
    with pytest.raises(ValueError, match="the schedule is stored under the name 'a', but has name='b'"):
        put("a", report, rota.Every(60, args=[1], name="b"))
    narrow = rota.Client(server.url, client.namespace, max_payload_kb=1)
    with narrow, pytest.raises(rota.PayloadTooLarge, match="the limit is 1 KiB"):
        narrow.schedules.put("nightly", "large", rota.Every(60, args=["x" * 2000], queue="q"))
    assert client.schedules.list() == []


def test_an_unknown_schedule_raises(client: Client) -> None:
    for verb in (client.schedules.pause, client.schedules.resume, client.schedules.run_now, client.schedules.upcoming):
        with pytest.raises(rota.UnknownSchedule, match="there is no schedule 'nightly'"):
            verb("nightly")


def test_an_invalid_record_is_listed_with_its_error(client: Client, fleet: Fleet) -> None:
    far = b"9" * 30
    fleet.redis.hset(fleet.keys.schedules, "far", b" ".join([far, far, far, far, b"0", far]) + b"\n" + TEXT)
    fleet.redis.hset(fleet.keys.schedules, "odd", b"whatever")
    fleet.redis.hset(fleet.keys.schedules, b"\xff\x1b", b"whatever")
    for place, name in enumerate((b"far", b"odd", b"\xff\x1b")):
        fleet.redis.zadd(fleet.keys.schedules_due, {name: place})

    far_away, shown, no_name = client.schedules.list()
    assert (far_away.name, far_away.last_at) == ("far", None)
    assert "not a schedule" in far_away.error
    assert "not a schedule" in no_name.error
    assert no_name.name.isascii()

    assert shown.name == "odd"
    assert "not a schedule" in shown.error
    assert client.schedules.get("odd") == shown
    with pytest.raises(rota.UnknownSchedule, match="no schedule 'odd': not a schedule"):
        client.schedules.run_now("odd")
