"""Rules for producers, which use the client or other programming languages."""

import itertools

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from machine.base import ANSWERED, DELIVERIES, HOLD_MS, QUEUES, SECOND_US, UNIQUE_KEYS, Machine
from model.items import LegacyItem, New
from rota.protocol.new_tasks import Enqueued, NewTask
from support.protocol import body_of

DUES = st.sampled_from(["", "", "", "^", "+1000000^", "+0", "+1", "+1000000", "+20000000", "+3600000000", "@1"])
KEYS = st.sampled_from([("", 0)] * 3 + [(key, hold) for key in UNIQUE_KEYS for hold in (0, HOLD_MS)])
WISHES = st.tuples(st.sampled_from(QUEUES), DUES, KEYS, st.integers(0, 9))
BARE = st.sampled_from(["full", "full", "short", "garbage", "empty", "live", "like an entry", "bad queue"])


FEW = 5


class Producing(Machine):
    """Rules that enqueue tasks with all options."""

    @rule(wishes=st.lists(WISHES, min_size=1, max_size=3), delivery=DELIVERIES)
    def enqueue(self, wishes: list[tuple[str, str, tuple[str, int], int]], delivery: str) -> None:
        """Enqueue tasks. Sometimes a task gets the id of a live task, or two tasks of the same call get the same id."""
        live, news = sorted(self.model.places.tasks, key=lambda one: not self.model.places.tasks[one].cancelled), []
        for queue, due, (key, hold_ms), luck in wishes:
            task_id = live[0] if live and not luck else f"t{next(self.ids)}"
            news.append(New(task_id, queue, body_of(task_id, queue).decode(), due, key, hold_ms))
        if not wishes[0][3]:
            news.append(news[-1])
        self.enqueue_news(news, delivery)

    @rule(queue=st.sampled_from(QUEUES), number=st.integers(2, 6), scheduled=st.booleans())
    def enqueue_many(self, queue: str, number: int, scheduled: bool) -> None:
        self.bring(queue, number, f"@{self.now + 2 * SECOND_US}" if scheduled else "")

    def bring_if_few(self, data: st.DataObject) -> None:
        """Enqueue tasks if few tasks are waiting. Rules that need tasks call this method, because the random rules
        alone would enqueue too few.
        """
        if sum(len(self.model.places.entries(queue)) for queue in QUEUES) < FEW:
            self.bring(data.draw(st.sampled_from(QUEUES)), FEW)

    def bring(self, queue: str, number: int, due: str = "") -> None:
        """Enqueue tasks. Some of them have a unique key."""
        ids = [f"t{next(self.ids)}" for _ in range(number)]
        keys = itertools.cycle(("k1", "", "k2", "", ""))
        self.enqueue_news([New(one, queue, body_of(one, queue).decode(), due, next(keys)) for one in ids])

    def enqueue_news(self, news: list[New], delivery: str = ANSWERED) -> None:
        nonce = f"{self.fleet.keys.namespace}-{next(self.ids)}"
        tasks = [NewTask(new.id, new.queue, new.body.encode(), new.due, new.unique_key, new.hold_ms) for new in news]

        def check(answers: list[Enqueued]) -> None:
            statuses = self.model.enqueue(self.now, nonce, news)
            assert answers == [
                Enqueued(status not in {"ok", "unserved"}, status.partition(" ")[2], status == "unserved")
                for status in statuses
            ]

        self.call(self.fleet.store.enqueue(nonce, tasks), check, delivery)

    def _bare(self, kind: str, queue: str) -> LegacyItem:
        number, live = next(self.ids), next(iter(self.model.places.tasks), "none")
        return {
            "full": LegacyItem(body_of(f"b{number}", queue).decode(), f"b{number}", queue),
            "live": LegacyItem(f'["{live}","{queue}","n{number}",[]]', live, queue),
            "short": LegacyItem(f'["work",[{number}]]'),
            "bad queue": LegacyItem(f'["b{number}","no queue!","work",[]]', f"b{number}"),
            "like an entry": LegacyItem(f"gone{number} {queue} i 1 1 0 0 0 0 -"),
            "empty": LegacyItem(""),
            "garbage": LegacyItem(f"%{{garbage {number}"),
        }[kind]

    @precondition(lambda self: not self.is_full)
    @rule(
        kind=BARE, queue=st.sampled_from(QUEUES), place=st.sampled_from(["ready", "ready", "delayed", "-5", "1", "30"])
    )
    def bare(self, kind: str, queue: str, place: str) -> None:
        """Push an item with RPUSH or ZADD, as programs in other languages do. Such a push does not ring a doorbell or
        mark a queue. An item that is not a valid task becomes dead when a worker or a poller finds it.
        """
        bare, keys = self._bare(kind, queue), self.fleet.keys
        if place in {"ready", "delayed"}:
            self.fleet.redis.rpush(keys.ready_lane(queue) if place == "ready" else keys.delayed_lane(queue), bare.text)
            self.model.push_item(bare, queue, place)
            self.without_token.add(queue)
        else:
            due = self.now + int(place) * SECOND_US
            self.fleet.redis.zadd(keys.delayed, {bare.text: f"{due / SECOND_US:.6f}"})
            self.model.schedule_item(bare, due)
            self.bare_is_unseen = True
