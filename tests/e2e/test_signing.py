"""A fleet that requires signatures runs only the tasks that its own producers and schedules enqueue."""

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
import redis

import rota
from rota import Call
from rota.protocol.body import Body, encode_body
from rota.protocol.keys import Keys
from rota_supervisor.acl_roles import AclRole
from support.acl_users import as_user
from support.fleets import UNSIGNED, Fleets, RunningFleet
from support.masters import ON_ONE_SERVER
from support.waiting import until

pytestmark = ON_ONE_SERVER

_CODE: Final = """

@rota.task(every=1)
def tick():
    write("start", "code")


@rota.task
def pass_on(label=""):
    note.enqueue(label)
"""


def _key(folder: Path, name: str) -> str:
    (folder / name).write_text(secrets.token_hex(32))
    return f"file:{folder / name}"


def _started(fleets: Fleets) -> RunningFleet:
    fleet = fleets.make(
        workers=2, signing=UNSIGNED, schedules={"filed": {"task": "note", "every": 1, "args": ["file"]}}
    )
    with (fleet.folder / "tasks.py").open("a") as code:
        code.write(_CODE)
    keys = {"old": _key(fleet.folder, "old")}
    fleet.edit(signing={"keys": keys, "sign_with": "old", "required": True})
    return fleet.start()


def _signing_client(fleet: RunningFleet, sign_with: str = "old", **more: Any) -> rota.Client:
    keys = {sign_with: f"file:{fleet.folder / sign_with}"}
    return rota.Client(
        as_user(fleet.url, AclRole.OPERATOR), fleet.namespace, signing_keys=keys, sign_with=sign_with, **more
    )


def note(label: str, **options: Any) -> Call[None]:
    return Call("note", [label], queue="default", **options)


def test_a_fleet_runs_signed_tasks_of_every_origin(fleets: Fleets) -> None:
    fleet = _started(fleets)
    with _signing_client(fleet) as client:
        client.enqueue(note("at once"))
        client.enqueue(note("delayed", delay=0.3))
        client.enqueue(note("unique", unique=True))
        client.enqueue(rota.chain(note("first of chain"), note("last of chain", delay=0.1)))
        client.enqueue(rota.group([note("member")], then=note("after group")))
        client.enqueue(Call("pass_on", ["from a task"], queue="default"))
        client.schedules.put("of-client", "note", rota.Every(1, args=["client"], queue="default"))
        labels = ["at once", "delayed", "unique", "first of chain", "last of chain", "member", "after group"]
        for label in [*labels, "from a task", "code", "file", "client"]:
            fleet.wait_for("start", label=label)
        client.schedules.run_now("of-client")
    assert fleet.rota("cron", "run", "filed").returncode in (0, 1)  # 1 if an occurrence is already running
    assert fleet.log("task.dead") == []


def _unsigned(fleet: RunningFleet, _: bytes) -> None:
    fleet.client.enqueue("note", args=["unsigned"], queue="default")


def _changed(fleet: RunningFleet, signed: bytes) -> None:
    _push(fleet, "copied", signed.replace(b"harmless", b"harmful!"))


def _copied(fleet: RunningFleet, signed: bytes) -> None:
    _push(fleet, "copied", signed)


def _guessed(fleet: RunningFleet, _: bytes) -> None:
    _push(fleet, "copied", encode_body(Body("copied", "default", "note", ["guessed"])) + b" old " + b"0" * 64)


def _push(fleet: RunningFleet, task_id: str, body: bytes) -> None:
    """Replace the body of a waiting task."""
    fleet.client.pause("default")
    fleet.client.enqueue("note", args=["placeholder"], queue="default", id=task_id)
    with redis.Redis.from_url(fleet.url) as plain:
        plain.hset(Keys(fleet.namespace).tasks, task_id, body)
    fleet.client.resume("default")


@pytest.mark.parametrize("attack", [_unsigned, _changed, _copied, _guessed])
def test_a_fleet_refuses_tasks_without_a_signature_of_their_own(
    fleets: Fleets, attack: Callable[[RunningFleet, bytes], None]
) -> None:
    fleet = _started(fleets)
    with _signing_client(fleet) as client:
        handle = client.enqueue(Call("note", ["harmless"], queue="default", delay=600))
        with redis.Redis.from_url(fleet.url) as plain:
            signed = plain.hget(Keys(fleet.namespace).tasks, handle.id)
        assert isinstance(signed, bytes)
        attack(fleet, signed)
        until(lambda: fleet.metrics().total("rota_tasks_dead_total", reason="signature") == 1, "a task is dead")
        client.enqueue(Call("note", ["signed"], queue="default"))
        fleet.wait_for("end", label="signed")
    assert {line.label for line in fleet.journal("start")} <= {"signed", "code", "file"}
    [row] = fleet.rota_json("dead", "ls")
    assert fleet.rota_json("task", "show", row["id"])["death"]["reason"] == "signature"
    assert fleet.books_balance()


def test_a_schedule_without_a_signature_enqueues_nothing(fleets: Fleets) -> None:
    fleet = _started(fleets)
    fleet.client.schedules.put("forged", "note", rota.Every(1, args=["forged"], queue="default"))
    until(lambda: fleet.log("schedule.unreadable"), "the schedule is reported")
    fleet.wait_for("start", 3, label="file")
    assert fleet.journal("start", label="forged") == []


def test_a_consumer_refuses_unsigned_tasks(fleets: Fleets) -> None:
    fleet = _started(fleets)
    with _signing_client(fleet, signing_required=True) as client, client.consumer("outside") as tasks:
        fleet.client.enqueue("anything", args=["unsigned"], queue="outside")
        client.enqueue(Call("anything", ["signed"], queue="outside"))
        task = next(iter(tasks))
        assert list(task.args) == ["signed"]
        task.done()


def _bodies(fleet: RunningFleet) -> list[bytes]:
    with redis.Redis.from_url(fleet.url) as plain:
        return list(plain.hvals(Keys(fleet.namespace).tasks))


def test_a_signing_key_is_rotated_under_load_without_a_refused_task(fleets: Fleets) -> None:
    fleet = _started(fleets)
    old, new = f"file:{fleet.folder / 'old'}", _key(fleet.folder, "new")
    sent = 0

    def ended() -> list[int]:
        return sorted(int(line.label) for line in fleet.journal("end") if line.label.isdecimal())

    def send(client: rota.Client) -> None:
        nonlocal sent
        client.enqueue_many(Call("note", [f"{sent + number}"], queue="default") for number in range(200))
        sent += 200

    with _signing_client(fleet) as before, _signing_client(fleet, "new") as after:
        send(before)
        fleet.edit(signing={"keys": {"old": old, "new": new}, "sign_with": "new", "required": True})
        assert "signing.sign_with" in fleet.rota("reload").stderr
        fleet.edit(signing={"keys": {"old": old, "new": new}, "sign_with": "old", "required": True})
        send(before)
        assert fleet.rota("reload").returncode == 0
        send(before)
        send(after)
        fleet.edit(signing={"keys": {"old": old, "new": new}, "sign_with": "new", "required": True})
        assert fleet.rota("reload").returncode == 0
        send(after)
        until(lambda: len(ended()) == sent, "the end of all tasks", 60)
        # A poller has enqueued occurrences of the schedules a few seconds before they are due.
        until(lambda: not any(b" old " in body for body in _bodies(fleet)), "no task is signed with the old key", 60)
        fleet.edit(signing={"keys": {"new": new}, "sign_with": "new", "required": True})
        assert fleet.rota("reload").returncode == 0
        send(after)
        until(lambda: len(ended()) == sent, "the end of all tasks", 60)
    assert ended() == list(range(sent))
    assert fleet.log("task.dead") == []
    assert fleet.books_balance()


@pytest.mark.parametrize(
    ("signing", "says"),
    [
        ({"keys": {"k": "swordfish"}, "sign_with": "k"}, 'signing.keys.k: expected "file:PATH" or "env:NAME"'),
        ({"keys": {"k": "file:no-such-file"}, "sign_with": "k"}, "cannot be read"),
        ({"required": True}, "signing.keys: signatures are required, but there is no key"),
    ],
)
def test_a_fault_in_the_settings_is_explained_and_no_key_is_shown(
    fleets: Fleets, signing: dict[str, Any], says: str
) -> None:
    fleet = fleets.make(signing=UNSIGNED)
    fleet.edit(signing=signing)
    checked = fleet.rota("check")
    assert checked.returncode == 78
    assert says in checked.stderr
    assert "swordfish" not in checked.stderr + checked.stdout
