"""`rota export` and `rota import` on a real server. Every key is copied, an interrupted import can be continued, and no
fleet can start before an import has ended.
"""

import hashlib
import io
import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import redis

from rota.client.blocking.client import Client
from rota.protocol.keys import COPIED, HELD_WITH_TASKS, REBUILT, Keys, family_of
from rota.protocol.new_tasks import NewTask
from rota.protocol.outcome import Done, Outcome, Release, RetryOutcome
from rota.server.server_errors import Refused
from rota_supervisor.backup.export_file import LineFile
from rota_supervisor.backup.file_check import records_after
from rota_supervisor.backup.import_file import ImportBatch, Importer, batches_of
from rota_supervisor.backup.records import End, end_record
from rota_supervisor.exits import ExitCode
from support.backups import content_of, counts_of, expiries_of, fill, lines_of, queues_with_entries
from support.command_line import Rota, rota_in
from support.grouping import Grouping
from support.protocol import Fleet, body_of, one_tier
from support.servers import Server
from support.waiting import repeating

Capture = pytest.CaptureFixture[str]
CLOCK_MS: Final = 5
RETRY: Final = RetryOutcome(1)
RELEASE: Final = Release()


@dataclass(frozen=True)
class Move:
    """Two namespaces on one server, and a folder for files. `at_old` and `at_new` run `rota` in this process for the
    old and the new namespace.
    """

    old: Fleet
    new: Fleet
    folder: Path
    at_old: Rota
    at_new: Rota

    def lines(self, name: str) -> list[bytes]:
        """Return the lines of this file in the folder."""
        return (self.folder / name).read_bytes().splitlines(keepends=True)


@pytest.fixture
def move(
    fleet: Fleet, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> Iterator[Move]:
    """Yield a move from a namespace that a fleet has used to a namespace that has no keys."""
    run = rota_in(tmp_path, monkeypatch, capsys)
    new = Fleet(server, f"{fleet.keys.namespace}-new")
    yield Move(fleet, new, tmp_path, _for(run, server, fleet), _for(run, server, new))
    new.close()


def _for(run: Rota, server: Server, fleet: Fleet) -> Rota:
    place = {"ROTA_REDIS_URL": server.url, "ROTA_NAMESPACE": fleet.keys.namespace}
    return lambda *words: run(*words, **place)


def content(fleet: Fleet) -> dict[str, Any]:
    """Return everything that an export of this namespace contains."""
    with raw(fleet) as client:
        return content_of(client, fleet.keys.namespace)


def raw(fleet: Fleet) -> Any:
    """Return a client that returns replies as bytes."""
    return redis.Redis(unix_socket_path=fleet.redis.connection_pool.connection_kwargs["path"])


def importer_of(fleet: Fleet) -> Importer:
    return Importer(fleet._connection, fleet.keys.namespace)


# Every key


def test_every_key_of_the_namespace_is_either_exported_or_rebuilt() -> None:
    keys = Keys("x")
    never_written = {"absent"}
    hidden = {"namespace", *never_written}
    public = [getattr(keys, name) for name in vars(Keys) if not name.startswith("_") and name not in hidden]
    spelled = [key if isinstance(key, str) else key("y") for key in public]
    families = {family_of(key.removeprefix("{x}:")) for key in spelled}
    assert families == {*COPIED, *REBUILT, *HELD_WITH_TASKS, "queue:", "inflight:"}


def test_every_key_is_unchanged_after_an_export_and_import(move: Move, client: Client) -> None:
    move.old.exit(fill(move.old, client).owner)
    exported = move.at_old("export", "all.jsonl", "--json")
    assert (exported.code, exported.err) == (0, "")
    before = content(move.old)
    assert {family_of(name) for name in before} >= {*COPIED, *HELD_WITH_TASKS}

    imported = move.at_new("import", "all.jsonl", "--json")

    assert (imported.code, imported.json["tasks"]) == (0, exported.json["tasks"])
    assert content(move.new) == before
    with raw(move.old) as client_of_both:
        here, there = (counts_of(client_of_both, each.keys.namespace) for each in (move.old, move.new))
        assert here == there
        old, new = (expiries_of(client_of_both, each.keys.namespace) for each in (move.old, move.new))
        assert old.keys() == new.keys()
        assert all(abs(new[name] - old[name]) <= CLOCK_MS for name in old)
        assert queues_with_entries(client_of_both, move.new.keys.namespace) >= {b"q", b"unknown", b"running"}
    audit = move.at_new("audit", "--json")
    assert (audit.code, audit.json["unplaced"], audit.json["missing"]) == (0, [], 0)


def test_exporting_an_imported_namespace_gives_the_same_lanes(move: Move, client: Client) -> None:
    move.old.exit(fill(move.old, client).owner)
    move.at_old("export", "first.jsonl")
    move.at_new("import", "first.jsonl")
    move.at_new("export", "second.jsonl")

    first, second = (lines_of(move.folder / name) for name in ("first.jsonl", "second.jsonl"))
    assert [record for record in first if is_in_a_lane(record)] == [record for record in second if is_in_a_lane(record)]
    assert len(first) == len(second)


def is_in_a_lane(record: dict[str, Any]) -> bool:
    return str(record.get("in", "")).startswith("queue:")


def test_tasks_run_in_the_same_order_after_an_import(move: Move) -> None:
    for first in range(0, 1200, 400):
        move.old.push(*(f"t{number}" for number in range(first, first + 400)))
    move.old.push("front", due="^")
    move.at_old("export", "all.jsonl")
    move.at_new("import", "all.jsonl")
    claims = move.new.turn(move.new.register(), one_tier("q"), limit=3).claims
    assert [claim.entry.id for claim in claims] == ["front", "t0", "t1"]
    assert move.new.lane() == move.old.lane()[3:]


# Tasks in flight


def test_tasks_in_flight_return_like_those_of_a_lost_node(move: Move) -> None:
    move.old.push("runs", "cancelled", "once", "waits")
    owner = move.old.register()
    claims = move.old.turn(owner, one_tier("q"), limit=3).claims
    move.old.run(move.old.store.mark_started(owner, claims[2].entry.text))
    move.old.run(move.old.store.cancel("cancelled"))

    exported = move.at_old("export", "all.jsonl")
    imported = move.at_new("import", "all.jsonl", "--json")

    assert "3 tasks that were in flight will run again" in exported.err
    assert imported.json["returned"] == 2
    (claim,) = move.new.turn(move.new.register(), one_tier("q")).claims
    assert (claim.entry.id, claim.entry.losses, claim.entry.kind.label) == ("runs", 1, "recovered")
    states = {each: move.new.run(move.new.store.status(each)).state for each in ("cancelled", "once", "waits")}
    assert states == {"cancelled": "cancelled", "once": "dead", "waits": "ready"}
    assert move.at_new("audit").code == 0


# Interruptions


def test_an_import_may_be_interrupted_after_every_line(move: Move, client: Client) -> None:
    move.old.exit(fill(move.old, client).owner)
    move.at_old("export", "all.jsonl")
    lines = move.lines("all.jsonl")
    sha256 = json.loads(lines[-1])["sha256"]
    importer = importer_of(move.new)
    done = importer.begin(sha256)
    while (batch := next(single_lines(lines, done), None)) is not None:
        importer.write(sha256, [batch], lambda _: None)
        importer.write(sha256, [batch], lambda _: None)  # sends the batch again, as if its reply had been lost
        done = importer.begin(sha256)

    assert move.at_new("import", "all.jsonl", "--json").json["continued_after"] == len(lines) - 1
    assert content(move.new) == content(move.old)


def single_lines(lines: list[bytes], done: int) -> Iterator[ImportBatch]:
    """Yield each record after the first `done` as a separate batch."""
    for record in itertools.islice(records_after(lines, max(done, 1)), len(lines) - 1 - max(done, 1)):
        yield from batches_of([record], done)


def test_no_owner_is_registered_before_the_end_of_an_import(move: Move) -> None:
    assert move.at_new("import", "--prepare").code == 0
    with pytest.raises(Refused, match="this namespace is being imported"):
        move.new.register()
    checked = move.at_new("check", "--no-imports")
    assert (checked.code, "is being imported: wait for `rota import`" in checked.err) == (ExitCode.CONFIG, True)


def test_the_import_of_another_file_is_refused_until_the_first_is_done(move: Move) -> None:
    move.old.push("a")
    move.at_old("export", "one.jsonl")
    move.old.push("b")
    move.at_old("export", "two.jsonl")
    importer_of(move.new).begin(hashlib.sha256(b"another file").hexdigest())

    refused = move.at_new("import", "one.jsonl")

    assert (refused.code, "the import of another file" in refused.err) == (ExitCode.NO, True)


def test_a_namespace_that_is_not_empty_is_refused(move: Move) -> None:
    move.old.push("a")
    move.at_old("export", "all.jsonl")
    refusals = [move.at_old("import", "all.jsonl"), move.at_old("import", "--prepare")]
    move.new.push("b")
    before = move.new.snapshot()
    refusals.append(move.at_new("import", "all.jsonl"))

    assert [refusal.code for refusal in refusals] == [ExitCode.NO] * 3
    assert all("is not empty" in refusal.err for refusal in refusals)
    assert move.new.snapshot() == before


# Producers that already use the new server


def test_producers_may_enqueue_into_a_prepared_namespace_before_the_import(move: Move) -> None:
    move.old.push("old-1", "old-2", "same")
    move.old.enqueue(NewTask("holds", "q", body_of("holds"), unique_key="key"))
    move.at_old("export", "all.jsonl")
    move.at_new("import", "--prepare")
    move.new.push("new-1", "same")
    move.new.enqueue(NewTask("newer", "q", body_of("newer"), unique_key="key"))

    imported = move.at_new("import", "all.jsonl", "--json")

    assert move.new.lane() == ["old-1", "old-2", "holds", "new-1", "same", "newer"]
    assert imported.json["left_out"] == [3]
    assert "1 task left out, because producers have enqueued tasks with the same ids: lines 3" in imported.err
    assert move.new.redis.get(move.new.keys.unique("key")) == "newer"
    audit = move.at_new("audit", "--json")
    assert (audit.code, audit.json["live"], audit.json["cancelled"]) == (0, 6, 1)


# Incomplete files


def without_end(lines: list[bytes]) -> list[bytes]:
    return lines[:-1]


def cut(lines: list[bytes]) -> list[bytes]:
    return [*lines[:3], lines[3][:40]]


def without_a_task(lines: list[bytes]) -> list[bytes]:
    return [lines[0], *lines[2:]]


def with_another_body(lines: list[bytes]) -> list[bytes]:
    return [line.replace(b"work", b"play") for line in lines]


def twice(lines: list[bytes]) -> list[bytes]:
    return lines * 2


def garbled(lines: list[bytes]) -> list[bytes]:
    return [lines[0], b"{\n", b'{"record":"cat"}\n', *lines[3:]]


def with_a_foreign_key(lines: list[bytes]) -> list[bytes]:
    return [lines[0], b'{"record":"key","key":"tasks","fields":{"a":"b"}}\n', *lines[1:]]


def of_another_protocol(lines: list[bytes]) -> list[bytes]:
    return [lines[0].replace(b'"protocol":1', b'"protocol":2'), *lines[1:]]


def of_another_format(lines: list[bytes]) -> list[bytes]:
    return [lines[0].replace(b'"format":1', b'"format":2'), *lines[1:]]


def nothing(_: list[bytes]) -> list[bytes]:
    return []


def of_another_program(_: list[bytes]) -> list[bytes]:
    return [b'{"hello": 1}\n', b"[]\n"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without_end, "all.jsonl: the file ends at line 6 without its last record"),
        (cut, "all.jsonl: line 4: the line does not end with a newline"),
        (without_a_task, "all.jsonl: the file does not match its last record: lines: 5 of 6, tasks and items: 2 of 3"),
        (with_another_body, "all.jsonl: the file does not match its last record: sha256: "),
        (twice, "all.jsonl: line 8: the line comes after the last record"),
        (
            garbled,
            "all.jsonl: line 3: the line is not a record of an export: expected one of header, task, item, key, end",
        ),
        (with_a_foreign_key, "all.jsonl: line 2: 'tasks' is not a key that an export contains"),
        (of_another_protocol, "line 1: the file has protocol 2, but this version of Rota uses 1: import it with Rota"),
        (of_another_format, "line 1: the file has format 2, but this version of Rota reads 1"),
        (nothing, "all.jsonl: the file is empty"),
        (of_another_program, "all.jsonl: line 1: the line is not a record of an export"),
    ],
)
def test_an_incomplete_file_is_refused_with_the_line(
    change: Callable[[list[bytes]], list[bytes]], message: str, move: Move
) -> None:
    move.old.push("a", "b", "c")
    move.old.redis.delete(*move.old.redis.scan_iter(match=move.old.keys.sent("*")))
    move.at_old("export", "all.jsonl")
    file = move.folder / "all.jsonl"
    file.write_bytes(b"".join(change(file.read_bytes().splitlines(keepends=True))))

    refused = move.at_new("import", "all.jsonl")

    assert (refused.code, message in refused.err) == (ExitCode.NO, True), refused.err
    assert refused.err.endswith("nothing was imported\n")
    assert move.new.snapshot() == {}


# Written files


def test_an_existing_file_is_not_overwritten(move: Move) -> None:
    move.old.push("a")
    (move.folder / "all.jsonl").write_text("mine")
    refused = move.at_old("export", "all.jsonl")
    assert (refused.code, (move.folder / "all.jsonl").read_text()) == (ExitCode.TAKEN, "mine")


def test_an_unfinished_export_leaves_no_file(move: Move) -> None:
    move.old.claimed("a")
    refused = move.at_old("export", "--exact", "all.jsonl")
    assert (refused.code, "1 task in flight" in refused.err) == (ExitCode.NO, True)
    assert move.at_old("export", "missing/all.jsonl").code == ExitCode.TAKEN
    assert list(move.folder.iterdir()) == []


def test_an_exact_export_is_refused_while_an_owner_is_registered(move: Move) -> None:
    owner = move.old.register()
    move.old.push("a")
    assert move.at_old("export", "--exact", "all.jsonl").code == ExitCode.NO
    move.old.exit(owner)
    assert move.at_old("export", "--exact", "all.jsonl", "--json").json["is_quiet"]


# A fleet that runs during the export


def test_tasks_that_move_during_an_export_are_exported_exactly_once(server: Server, move: Move) -> None:
    """While the export runs, half of the tasks are repeatedly claimed and given back. In between, some of them are
    scheduled.
    """
    moving, resting = [f"m{number}" for number in range(300)], [f"r{number}" for number in range(300)]
    move.old.push(*moving, queue="moving")
    move.old.push(*resting)
    with closing(Fleet(server, move.old.keys.namespace)) as other, repeating(mover(other), 0.0):
        for number in range(5):
            assert move.at_old("export", f"{number}.jsonl").code == 0

    for number in range(5):
        tasks = [record for record in lines_of(move.folder / f"{number}.jsonl") if record["record"] == "task"]
        assert sorted(record["id"] for record in tasks) == sorted(moving + resting)
    assert move.at_new("import", "4.jsonl").code == 0
    assert move.at_new("audit", "--json").json["live"] == 600


def mover(fleet: Fleet) -> Callable[[], None]:
    """Return a function that claims some tasks and gives them back. Each call moves these tasks to other places."""
    owner = fleet.register()
    ends: Iterator[Outcome] = itertools.cycle([RETRY, RELEASE])

    def take_elsewhere() -> None:
        claims = fleet.turn(owner, one_tier("moving"), limit=20).claims
        fleet.turn(owner, one_tier("moving"), *((claim, next(ends)) for claim in claims), limit=0)
        fleet.promote()

    return take_elsewhere


def test_a_task_without_a_place_is_exported_with_a_new_entry(move: Move) -> None:
    move.old.push("again")
    move.old.run(move.old.store.cancel("again"))
    move.old.enqueue(NewTask("again", "q", body_of("again"), unique_key="key"), NewTask("garbled", "q", b"{"))
    move.old.redis.delete(move.old.keys.ready_lane("q"))

    move.at_old("export", "all.jsonl")
    move.at_new("import", "all.jsonl")

    assert move.at_new("audit").code == 0
    assert move.new.claim(move.new.register(), one_tier("q", "unknown"), limit=2) == ["again"]
    assert move.new.lane("unknown") == ["garbled"]


def test_keys_of_another_type_are_left_out_with_a_warning(move: Move) -> None:
    move.old.push("a")
    move.old.redis.set(move.old.keys.rates, "fast")
    move.old.redis.rpush(move.old.keys.result("x"), "no")

    exported = move.at_old("export", "all.jsonl", "--json")

    assert (exported.code, exported.json["tasks"]) == (0, 1)
    assert sorted(exported.json["left_out"]) == ["rates", "result:x"]
    assert "the key 'rates' has a type that Rota does not use for it, so the key was left out" in exported.err


def test_a_group_ends_if_its_last_member_ended_while_the_export_ran(move: Move) -> None:
    groups = Grouping(move.old)
    groups.open("g", "a", "b", then="end")
    move.old.exit(groups.owner)
    move.at_old("export", "all.jsonl")
    header, *records, _ = lines_of(move.folder / "all.jsonl")
    totals = next(record for record in records if record.get("key") == "totals")
    totals["fields"]["done"] = "1"
    write_file(move.folder / "all.jsonl", [header, *(record for record in records if record.get("id") != "a")])

    assert move.at_new("import", "all.jsonl").code == 0

    new = Grouping(move.new)
    assert (new.state("g").left, new.state("g").ended["purged"]) == (1, 1)
    new.run_one(Done())
    assert move.new.lane() == ["end"]
    assert move.at_new("audit").code == 0


def write_file(path: Path, records: list[dict[str, Any]]) -> None:
    """Write these records into a file, in the format of a complete export."""
    file = io.BytesIO()
    out = LineFile(file)
    for record in records:
        out.write(record)
    tasks, items, keys = (out.counts[kind] for kind in ("task", "item", "key"))
    end = End(out.lines, tasks, items, keys, running=0, is_quiet=False, at="", sha256=out.sha256)
    out.write(end_record(end))
    path.write_bytes(file.getvalue())
