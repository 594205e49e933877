"""The messages between master and children."""

import dataclasses
import hashlib
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from rota.child import slot_layout
from rota.child.child_settings import LogSettings, PollerSettings, ServerSettings, TaskOverride, WorkerSettings
from rota_supervisor import messages
from rota_supervisor.exporter.exporter_settings import ExporterSettings, QueueSettings

ALL = [
    messages.First("poller", "node", 1, 4, 2, {"rank": 0}),
    messages.PoolSettings("mail", "{}"),
    messages.Fork(8, 3, "node:8:1", "mail"),
    messages.Bye(),
    messages.Slots(),
    messages.Imported((("send", "mail"),)),
    messages.Scheduled("nightly", "{}"),
    messages.Warned("a thread"),
    messages.Ready(2, 3),
    messages.Importing("tasks"),
    messages.ImportFailed("tasks", "ImportError: no", "tasks.py:1"),
    messages.Spawned(8, 3, 77),
    messages.ForkFailed(8, 3, "EAGAIN"),
]


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = messages.pair()
    with ours, theirs:
        yield ours, theirs


@pytest.mark.parametrize("message", ALL, ids=lambda message: type(message).__name__)
def test_each_kind_of_message_is_received_as_it_was_sent(
    ends: tuple[socket.socket, socket.socket], message: messages.Message
) -> None:
    messages.send(ends[0], message)
    received, _ = messages.receive(ends[1])
    assert type(received) is type(message)
    assert messages.encode(received) == messages.encode(message)


def test_the_message_about_a_failed_import_names_its_location_once() -> None:
    assert messages.ImportFailed("m", "NameError: x", "m.py:1").message() == (
        "module m cannot be imported: NameError: x (m.py:1)"
    )
    twice = "DuplicateTask: m.a (m.py:1) and m.a (m.py:4); give one of them another name"
    assert messages.ImportFailed("m", twice, "m.py:4").message() == f"module m cannot be imported: {twice}"
    assert messages.ImportFailed("m", twice, "").message() == f"module m cannot be imported: {twice}"


def test_messages_are_received_after_their_sender_has_exited(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = ends
    messages.send(ours, messages.Slots())
    messages.send(theirs, messages.ImportFailed("tasks", "ImportError: no", "tasks.py:1"))
    theirs.close()
    assert messages.receive(ours) == (messages.ImportFailed("tasks", "ImportError: no", "tasks.py:1"), None)
    assert messages.receive(ours) == (None, None)


def test_the_message_tests_cover_every_kind_of_message() -> None:
    assert {type(message).__name__ for message in ALL} == set(messages._TYPES)


def test_messages_are_not_joined_or_split(ends: tuple[socket.socket, socket.socket]) -> None:
    long = messages.PoolSettings("mail", "x" * 150_000)
    for message in (messages.Bye(), long, messages.Bye()):
        messages.send(ends[0], message)
    assert [messages.receive(ends[1])[0] for _ in range(3)] == [messages.Bye(), long, messages.Bye()]


def test_receiving_from_a_closed_socket_returns_none(ends: tuple[socket.socket, socket.socket]) -> None:
    ends[0].close()
    assert messages.receive(ends[1]) == (None, None)


def test_a_first_message_from_another_protocol_version_is_refused(ends: tuple[socket.socket, socket.socket]) -> None:
    ends[0].send(json.dumps({"abi": 0, "kind": "of another version"}).encode())
    with pytest.raises(messages.WrongAbi, match="restart the master"):
        messages.receive_first(ends[1])


def test_the_first_message_transfers_named_file_descriptors(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    first = messages.First("poller", "node", 1, 4, 1, {})
    fds = [os.memfd_create(name) for name in ("slots", "bell", "stack")]
    messages.send_first(ends[0], first, messages.Descriptors(fds[0], fds[1], stack=fds[2]))

    received, descriptors = messages.receive_first(ends[1])

    assert received._replace(along=()) == first
    assert descriptors.listen is None
    for fd, name in ((descriptors.slots, "slots"), (descriptors.bell, "bell"), (descriptors.stack, "stack")):
        assert fd is not None
        assert str(Path(f"/proc/self/fd/{fd}").readlink()).startswith(f"/memfd:{name}")
        assert not os.get_inheritable(fd)
        os.close(fd)
    for fd in fds:
        os.close(fd)


def test_a_channel_closed_before_the_first_message_raises_eof_error(ends: tuple[socket.socket, socket.socket]) -> None:
    ends[0].close()
    with pytest.raises(EOFError):
        messages.receive_first(ends[1])


SETTINGS = (
    ExporterSettings, LogSettings, PollerSettings, QueueSettings, ServerSettings, TaskOverride, WorkerSettings
)  # fmt: skip
AS_OF_THIS_ABI = (13, "95fe70f6a629")


def test_a_change_to_shared_data_structures_requires_a_new_abi_number() -> None:
    fields = [f"{each.__name__}.{field.name}" for each in SETTINGS for field in dataclasses.fields(each)]
    sent = [f"{type(each).__name__}: {tuple(type(each).__annotations__)}" for each in ALL]
    layout = [f"{name} = {value!r}" for name, value in vars(slot_layout).items() if name.isupper()]
    shared = "\n".join([*fields, *sent, *layout])
    digest = hashlib.sha256(shared.encode()).hexdigest()[:12]
    assert (messages.ABI, digest) == AS_OF_THIS_ABI, f"raise the ABI, and write both here:\n{shared}"
