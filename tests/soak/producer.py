"""A process that sends tasks and records the replies: `python -m soak.producer FOLDER NAME URL SEED`.

1. The producer writes each call to its journal before it makes the call, and then writes the reply. 2. A call without a
   reply is repeated with `Uncertain.repeat` until there is a reply or a repeat would come too late. A call for the
   ordered queue waits for the reply to the previous call. All other calls are made in the meantime. 3. The producer
   pauses while too many of its tasks have not ended, so that a fleet under faults is not overloaded. 4. SIGTERM ends
   the load. Calls that are still in doubt are resolved first.
"""

import argparse
import dataclasses
import json
import signal
import time
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, assert_never

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from rota import Call, ChainHandle, Client, GroupHandle, Handle, Unavailable, Uncertain, chain, group
from rota.protocol.keys import Keys
from rota.protocol.replies import CancelStatus
from soak.evidence import RUNS_FILE, CallEvent, Journal, Sent, now
from soak.load import FLOWS, ORDER, Intent, Load, Verb
from soak.node import NAMESPACE
from soak.outstanding import Outstanding

MOST_OUTSTANDING: Final = 250
_TIMEOUT_SECONDS: Final = 1.5
_Handle = Handle[object] | ChainHandle | GroupHandle
_TICK_SECONDS: Final = 0.02
# The load's own clock advances by at most this much per step, even if a call took longer.
_LONGEST_STEP_SECONDS: Final = 0.1
_AGAIN_SECONDS: Final = 0.3
_CANCELS: Final = {
    CancelStatus.CANCELLED: CallEvent.CANCELLED,
    CancelStatus.RUNNING: CallEvent.CANCELLING,
    CancelStatus.DEAD: CallEvent.NOT_CANCELLED,
    CancelStatus.UNKNOWN: CallEvent.NOT_CANCELLED,
}


def _plain_client(url: str) -> "redis.Redis | redis.RedisCluster":
    """Return a client that pushes items as programs in other languages do, and repeats nothing."""
    scheme, _, nodes = url.partition("+cluster://")
    options: dict[str, Any] = {"socket_timeout": _TIMEOUT_SECONDS, "retry": Retry(NoBackoff(), 0)}
    if nodes:
        return redis.RedisCluster.from_url(f"{scheme}://{nodes.partition(',')[0]}", **options)
    return redis.Redis.from_url(url, **options)


class Producer:
    """A producer with its load. `doubts` has the calls that were sent but got no reply, and must be repeated."""

    def __init__(self, folder: Path, name: str, url: str) -> None:
        self._journal = Journal(folder / f"producer-{name}.jsonl")
        self._client = Client(url, NAMESPACE, timeout_seconds=_TIMEOUT_SECONDS)
        self._redis = _plain_client(url)
        self._keys = Keys(NAMESPACE)
        self.doubts: deque[tuple[Intent, Uncertain]] = deque()
        self.outstanding = Outstanding(folder / RUNS_FILE)

    def do(self, intent: Intent) -> None:
        """Make one call, and write the request and its reply to the journal."""
        self._record(CallEvent.CANCEL if intent.verb is Verb.CANCEL else CallEvent.INTENDED, intent, intent.ids)
        match intent.verb:
            case Verb.ENQUEUE | Verb.MANY | Verb.UNIQUE:
                self._enqueue(intent)
            case Verb.GROUP | Verb.CHAIN:
                self._flow(intent)
            case Verb.PUSH:
                self._bare(intent, lambda item: self._redis.rpush(self._keys.ready_lane(intent.queue), item))
            case Verb.SCHEDULE:
                due = time.time() + intent.delay_seconds
                self._bare(intent, lambda item: self._redis.zadd(self._keys.delayed, {item: due}))
            case Verb.CANCEL:
                self._cancel(intent)
            case _:
                assert_never(intent.verb)

    def _enqueue(self, intent: Intent) -> None:
        self._send(intent, lambda: self._client.enqueue_many(_calls(intent)))
        if intent.queue == ORDER:
            self.clear_up()

    def _flow(self, intent: Intent) -> None:
        *members, last = calls = _calls(intent)
        flow = chain(*calls) if intent.verb is Verb.CHAIN else group(members, then=last)
        self._send(intent, lambda: [self._client.enqueue(flow)])

    def _send(self, intent: Intent, call: Callable[[], Sequence[_Handle]]) -> None:
        try:
            self._note_reply(intent, call())
        except Uncertain as error:
            self._accepted(intent, error.accepted)
            unsent = set(intent.ids) - {*error.accepted, *_part(intent, error).ids}
            self._record(CallEvent.REFUSED, intent, sorted(unsent), "not sent")
            self.doubts.append((intent, error))
        except Unavailable as error:
            self._accepted(intent, error.accepted)
            self._record(CallEvent.REFUSED, intent, sorted(set(intent.ids) - set(error.accepted)), _error_text(error))

    def _note_reply(self, intent: Intent, handles: Sequence[_Handle]) -> None:
        if intent.verb in FLOWS:
            self._accepted(intent, intent.ids)
            return
        ids = [each for each in intent.ids if each in {handle.id for handle in handles}]
        for handle in handles:
            if handle.id not in ids:
                others = set(intent.ids) - set(ids)
                self._record(CallEvent.HELD, intent, sorted(others), handle.id)
            elif handle.duplicate:
                self._record(CallEvent.DUPLICATE, intent, [handle.id])
            else:
                self._accepted(intent, [handle.id])

    def clear_up(self) -> None:
        """Repeat the calls in doubt until none is left."""
        while self.doubts:
            self.repeat_oldest()
            if self.doubts:
                time.sleep(_AGAIN_SECONDS)

    def repeat_oldest(self) -> None:
        """Repeat the call that has been in doubt the longest."""
        intent, error = self.doubts.popleft()
        part = _part(intent, error)
        try:
            self._note_reply(part, error.repeat())
        except Uncertain as again:
            self._accepted(part, again.accepted)
            part = _part(part, again)
            if "too late" in str(again):
                self._record(CallEvent.UNKNOWN, part, part.ids, _error_text(again))
            else:
                self.doubts.append((part, again))
        except Unavailable as refused:  # this repeat was refused, but the original call may have been accepted
            self._record(CallEvent.UNKNOWN, part, part.ids, _error_text(refused))

    def _bare(self, intent: Intent, send: Callable[[str], object]) -> None:
        [each] = intent.ids
        item = json.dumps([each, intent.queue, intent.task, intent.args])
        try:
            send(item)
        except redis.exceptions.ResponseError as error:
            self._record(CallEvent.REFUSED, intent, intent.ids, _error_text(error))
        except (redis.exceptions.RedisError, OSError) as error:
            self._record(CallEvent.UNKNOWN, intent, intent.ids, _error_text(error))
        else:
            self._accepted(intent, intent.ids)

    def _cancel(self, intent: Intent) -> None:
        [each] = intent.ids
        try:
            word = self._client.cancel(each)
        except Unavailable as error:
            self._record(CallEvent.NOT_CANCELLED, intent, intent.ids, _error_text(error))
        except Uncertain as error:
            self._record(CallEvent.CANCEL_UNKNOWN, intent, intent.ids, _error_text(error))
        else:
            self._record(_CANCELS[word], intent, intent.ids)
            if word is CancelStatus.CANCELLED:
                self.outstanding.forget(each)

    def _accepted(self, intent: Intent, ids: "list[str] | tuple[str, ...]") -> None:
        self._record(CallEvent.ACCEPTED, intent, ids)
        if not (intent.nature.fails or intent.nature.gives_up):
            self.outstanding.add(ids)

    def _record(self, what: CallEvent, intent: Intent, ids: "list[str] | tuple[str, ...]", reply: str = "") -> None:
        for each in ids:
            at, boot = now()
            if what is CallEvent.INTENDED:
                due = at + intent.delay_seconds if intent.delay_seconds else 0.0
                unique = f"{intent.task}{intent.args}" if intent.verb is Verb.UNIQUE else ""
                nature = intent.nature
                sent = Sent(what, each, at, boot, intent.queue, intent.task, due, unique, nature.retries,
                            intent.fails, nature.kills, nature.gives_up, intent.number,
                            " ".join(intent.before(each)))  # fmt: skip
            else:
                sent = Sent(what, each, at, boot, reply=reply)
            self._journal.write(sent)


def _calls(intent: Intent) -> list[Call[object]]:
    return [
        Call(
            intent.task,
            intent.args,
            queue=intent.queue,
            delay=intent.delay_seconds or None,
            id=each,
            unique=intent.verb is Verb.UNIQUE,
            retries=intent.nature.retries,
        )
        for each in intent.ids
    ]


def _part(intent: Intent, doubt: Uncertain) -> Intent:
    """Return the tasks of a call whose acceptance is in doubt. Groups and chains are accepted as a whole, so all of
    their tasks are in doubt together.
    """
    kept = intent.ids if intent.verb in FLOWS else tuple(each for each in intent.ids if each in doubt.ids)
    return dataclasses.replace(intent, ids=kept)


def _error_text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:200]


class _Ending:
    """A handler of SIGTERM. `stop_requested` becomes true when the signal is received."""

    def __init__(self) -> None:
        self.stop_requested = False
        signal.signal(signal.SIGTERM, self._request_stop)

    def _request_stop(self, _number: int, _frame: object) -> None:
        self.stop_requested = True


def produce(producer: Producer, load: Load, ending: _Ending) -> None:
    """Send the load until SIGTERM, and pause while too many tasks are unfinished. Then resolve the calls that are in
    doubt.
    """
    at = 0.0
    looked = time.monotonic()
    while not ending.stop_requested:
        time.sleep(_TICK_SECONDS)
        passed = time.monotonic() - looked
        looked = time.monotonic()
        if producer.outstanding.count() > MOST_OUTSTANDING:
            continue
        until = at + min(passed, _LONGEST_STEP_SECONDS)
        for intent in load.between(at, until):
            producer.do(intent)
        at = until
        if producer.doubts:
            producer.repeat_oldest()
    producer.clear_up()


def main() -> None:
    """Run a producer with the arguments of the command line, until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("name")
    parser.add_argument("url")
    parser.add_argument("seed", type=int)
    parser.add_argument("--the-one", action="store_true", help="send also what only one producer sends")
    given = parser.parse_args()
    warnings.simplefilter("ignore")  # hides the warnings about a queue whose only node is down
    ending = _Ending()
    load = Load(given.name, given.seed, is_the_one=given.the_one)
    produce(Producer(given.folder, given.name, given.url), load, ending)


if __name__ == "__main__":
    main()
