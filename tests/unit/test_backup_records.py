"""The parts of exports and imports that need no server."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.protocol.task_states import ENDS_OF_GONE
from rota.protocol.transfers import ImportedItem, ImportedKey, TaskData
from rota.protocol.wire import pack
from rota_supervisor.backup.export_file import balance
from rota_supervisor.backup.file_check import NumberedRecord
from rota_supervisor.backup.import_file import batches_of
from rota_supervisor.backup.namespace_reader import BatchSize
from rota_supervisor.backup.records import (
    RecordError,
    entry_record,
    item_record,
    key_record,
    parse_line,
    ticket_record,
    to_line,
)
from rota_supervisor.backup.seen_ids import SeenIds

ANY_BYTES = st.binary(max_size=40)


def as_sent(item: ImportedItem) -> bytes:
    return pack(item).data


@given(ANY_BYTES, ANY_BYTES, ANY_BYTES, ANY_BYTES, ANY_BYTES)
def test_exporting_and_importing_a_task_preserves_any_bytes(
    entry: bytes, body: bytes, attempts: bytes, unique: bytes, follows: bytes
) -> None:
    task = TaskData(body, attempts, unique, follows)
    listed = parse_line(to_line(entry_record("queue:q", b"a " + entry, task)))
    scored = parse_line(to_line(ticket_record("dead", b"17.25", b"a", entry, task)))
    assert isinstance(listed, ImportedItem)
    assert isinstance(scored, ImportedItem)
    assert as_sent(listed) == pack(("queue:q", "", b"a " + entry, "a", body, attempts, unique, follows)).data
    assert as_sent(scored) == pack(("dead", "17.25", entry, "a", body, attempts, unique, follows)).data


@given(ANY_BYTES)
def test_exporting_and_importing_a_list_item_preserves_any_bytes(text: bytes) -> None:
    item = parse_line(to_line(item_record("inflight:node:1:2", text)))
    assert isinstance(item, ImportedItem)
    assert as_sent(item) == pack(("inflight:node:1:2", "", text, "", "", "", "", "")).data


@given(st.lists(ANY_BYTES, min_size=1, max_size=5, unique=True))
def test_exporting_and_importing_sets_and_hashes_preserves_any_bytes(values: list[bytes]) -> None:
    members = parse_line(to_line(key_record("paused", values)))
    fields = parse_line(to_line(key_record("schedules", [part for value in values for part in (value, value)], 7)))
    assert isinstance(members, ImportedKey)
    assert isinstance(fields, ImportedKey)
    assert pack(members.values) == pack(values)
    assert pack(fields.values) == pack([part for value in values for part in (value, value)])
    assert (members.kind, fields.kind, fields.expires_ms) == ("set", "hash", 7)


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (
            {"record": "task", "in": "queue:q", "id": "a", "entry": 7, "body": ""},
            "the line does not have the fields of the record",
        ),
        ({"record": "task", "in": "queue:q", "id": "a", "body": ""}, "the line does not have the fields of the record"),
        (
            {"record": "task", "in": "totals", "id": "a", "entry": "", "body": ""},
            "'totals' is not a key that holds tasks",
        ),
        ({"record": "item", "in": "delayed", "text": "", "score": "nan"}, "the score 'nan' is not a number"),
        ({"record": "key", "key": "groups", "fields": {"g": "1e"}}, "a score is not a number"),
        ({"record": "key", "key": "totals", "fields": {"done": "many"}}, "a count is not a whole number"),
        ({"record": "key", "key": "queues", "values": []}, "the line does not have the fields of the record"),
        (
            {"record": "key", "key": "queues", "values": ["q"], "expires_ms": "7"},
            "the line does not have the fields of the record",
        ),
        ({"record": "end"}, "the line does not have the fields of the record"),
        ([], "the line is not a record of an export"),
    ],
)
def test_an_invalid_export_record_is_refused_with_the_reason(record: Any, reason: str) -> None:
    with pytest.raises(RecordError, match=reason):
        parse_line(json.dumps(record).encode() + b"\n")


@given(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9), st.integers(0, 9))
def test_imported_counters_are_corrected_to_match_the_number_of_tasks(
    accepted: int, done: int, cancelled: int, tasks: int
) -> None:
    balanced = balance({"accepted:q": accepted, "done": done, "cancelled": cancelled, "groups-ended:then": 1}, tasks)
    everything = sum(count for field, count in balanced.items() if field.startswith("accepted:"))
    assert everything - sum(balanced.get(how, 0) for how in ENDS_OF_GONE) == tasks
    assert all(count >= 0 for count in balanced.values())
    assert balanced["groups-ended:then"] == 1


@given(st.lists(st.binary(max_size=8)))
def test_a_set_of_seen_ids_reports_each_id_as_new_only_once(members: list[bytes]) -> None:
    seen, known = SeenIds(0), set[bytes]()
    for member in members:
        assert (member in seen) == (member in known)
        assert seen.add(member) == (member not in known)
        known.add(member)
    assert len(seen) == len(known)


def test_a_set_of_seen_ids_grows_beyond_its_initial_size() -> None:
    seen = SeenIds(10)
    assert all(seen.add(b"%d" % number) for number in range(10_000))
    assert not any(seen.add(b"%d" % number) for number in range(10_000))


def test_the_export_reads_large_task_bodies_in_smaller_batches() -> None:
    size = BatchSize()
    for _ in range(9):
        size.learn(1000)
    assert size.count == 500
    for _ in range(12):
        size.learn(50_000_000)
    assert size.count == 1


def test_import_batches_contain_every_record_in_order() -> None:
    item = ImportedItem("queue:q", "", "x", "", "", "", "", "")
    key = ImportedKey("paused", "set", None, ["q"] * 300)
    parsed = [item] * 700 + [key] * 3 + [item]
    records = [NumberedRecord(number, each, 10) for number, each in enumerate(parsed, 2)]
    batches = list(batches_of(records, 0))
    assert [(len(batch.items), len(batch.keys)) for batch in batches] == [
        (500, 0),
        (200, 0),
        (0, 1),
        (0, 1),
        (0, 1),
        (1, 0),
    ]
    assert [batch.before for batch in batches] == [0, *(batch.after for batch in batches[:-1])]
    assert batches[-1].after == len(parsed) + 1
    large = [NumberedRecord(number, item, 700_000) for number in range(2, 5)]
    assert [batch.after for batch in batches_of(large, 0)] == [2, 3, 4]
    assert [batch.after for batch in batches_of([], 0)] == [1]
    assert list(batches_of([], 9)) == []
