"""The nonces of enqueues, by which the server recognizes repeated calls. A nonce consists of a name and a number. A
call gets the name of the previous nonce with the next number, but only if the previous call can never be repeated.
"""

import os
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from rota.client.command_replies import NotAccepted, NotConfirmed, NotReplied, Replied, Reply, Uncertain
from rota.client.sender import Batch, Cut, Sender, Sending
from rota.errors import Unavailable
from rota.protocol.new_tasks import NewTask
from rota.protocol.scripts import ScriptCall

BATCH = 125  # the number of tasks per call
ROUND = 32 * BATCH
Repeated = list[Callable[[], Sending[NewTask]]]


def sender_of(repeats: Repeated) -> Sender[NewTask, Any, NewTask]:
    """Return a sender that yields its batches instead of converting them to script calls, so that a test can read their
    nonces. For each call with an uncertain outcome, a function that repeats the call is added to `repeats`.
    """

    def doubt(why: str, ids: Sequence[str], again: Callable[[], Sending[NewTask]]) -> Uncertain:
        repeats.append(again)
        return Uncertain(why, ids)

    def handles_of(items: Sequence[NewTask], _: object) -> list[NewTask]:
        return list(items)

    return Sender(lambda batch: cast("ScriptCall[Any]", batch), handles_of, doubt, 5.0)


def nonces_of(sending: Sending[NewTask], *replies: Sequence[Reply[Any]] | Exception) -> list[str]:
    """Run a call whose exchanges get these replies, and return the nonces that the call sent."""
    found: list[str] = []
    try:
        exchange = next(sending)
        for reply in replies:
            batches = cast("list[Batch[NewTask]]", list(exchange.commands))
            found += [batch.nonce for batch in batches]
            exchange = sending.throw(reply) if isinstance(reply, Exception) else sending.send(list(reply))
    except (StopIteration, Unavailable, Uncertain):
        return found
    raise AssertionError("it continues")


def nonces_of_call(sender: Sender[NewTask, Any, NewTask], *replies: Sequence[Reply[Any]] | Exception) -> list[str]:
    return nonces_of(sender.send([NewTask("a", "q", b"")]), *replies)


REPLIED: list[Reply[Any]] = [Replied([])]
SILENT: list[Reply[Any]] = [NotReplied("silent")]


def test_enqueues_that_got_a_reply_reuse_a_nonce_name_with_a_new_number() -> None:
    sender = sender_of([])
    (first,), (second,), (third,) = (nonces_of_call(sender, REPLIED) for _ in range(3))
    name = first.removesuffix(" 1")
    assert [second, third] == [f"{name} 2", f"{name} 3"]


def test_senders_for_other_calls_of_a_client_continue_its_nonce_names() -> None:
    sender = sender_of([])
    besides: Sender[NewTask, Any, NewTask] = sender.of(
        lambda batch: cast("ScriptCall[Any]", batch), lambda items, _: list(items)
    )
    (first,), (second,), (third,) = (nonces_of_call(each, REPLIED) for each in (sender, besides, sender))
    name = first.removesuffix(" 1")
    assert [second, third] == [f"{name} 2", f"{name} 3"]


@pytest.mark.parametrize(
    "replies",
    [
        [SILENT, REPLIED],
        [SILENT, SILENT],
        [[NotConfirmed("no replica")]],
        [[NotAccepted(Unavailable("full"))]],
        [Cut(is_sent=True)],
        [Unavailable("no connection")],
    ],
    ids=["repeated", "in doubt", "unconfirmed", "refused", "cancelled", "not sent"],
)
def test_the_nonce_name_of_a_failed_or_repeated_enqueue_is_never_reused(
    replies: list[Sequence[Reply[Any]] | Exception],
) -> None:
    sender = sender_of([])
    first, *again = nonces_of_call(sender, *replies)
    assert set(again) <= {first}
    assert nonces_of_call(sender, REPLIED)[0].split()[0] != first.split()[0]


def test_an_enqueue_that_the_caller_repeats_keeps_its_nonce() -> None:
    repeats: Repeated = []
    sender = sender_of(repeats)
    first, _ = nonces_of_call(sender, SILENT, SILENT)
    nonces_of_call(sender, REPLIED)
    [again] = repeats
    assert nonces_of(again(), REPLIED) == [first]


def test_later_batches_of_an_enqueue_reuse_the_nonce_names_of_the_first() -> None:
    sender = sender_of([])
    many = [NewTask(str(number), "q", b"") for number in range(3 * ROUND)]
    round_of_replies = REPLIED * (ROUND // BATCH)
    nonces = nonces_of(sender.send(many), *[round_of_replies] * 3)
    assert len({nonce.split()[0] for nonce in nonces}) == ROUND // BATCH
    assert len(set(nonces)) == 3 * ROUND // BATCH


def test_a_child_forked_between_two_batches_shares_no_later_nonce() -> None:
    sender = sender_of([])
    many = [NewTask(str(number), "q", b"") for number in range(ROUND + 1)]
    reading, writing = os.pipe()
    forked: list[int] = []

    def fork(_: int) -> None:
        if not forked:
            forked.append(os.fork())

    def later_nonces() -> list[str]:
        sent = nonces_of(sender.send(many, fork), REPLIED * (ROUND // BATCH), REPLIED)
        return [sent[-1], *nonces_of_call(sender, REPLIED)]

    try:
        ours = later_nonces()
        if forked == [0]:
            os.write(writing, "\n".join(ours).encode())
    finally:
        if forked == [0]:
            os._exit(0)
    os.waitpid(forked[0], 0)
    childs = os.read(reading, 1000).decode().split("\n")
    os.close(reading)
    os.close(writing)
    assert len(childs) == 2
    assert set(ours).isdisjoint(childs)


def test_a_forked_child_uses_its_own_nonce_names(monkeypatch: pytest.MonkeyPatch) -> None:
    sender = sender_of([])
    [ours] = nonces_of_call(sender, REPLIED)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    [childs] = nonces_of_call(sender, REPLIED)
    assert childs.split()[0] != ours.split()[0]
