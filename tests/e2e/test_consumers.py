"""Consumers beside the workers of a fleet. Together, consumers and workers run each task once and never exceed a
cap.
"""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import accumulate

import redis

import rota
from rota.protocol.keys import Keys
from support.fleets import Fleets, RunningFleet
from support.waiting import until

CONSUMERS = 4
TASKS = 2000
CAPPED_TASKS = 60
CAP = 3  # one more than the number of workers, all of which are always busy

Act = Callable[[rota.LeasedTask], object]


@contextmanager
def consuming(fleet: RunningFleet, queue: str, act: Act) -> Iterator[None]:
    """Run several consumers of this queue during the block. The consumers call `act` with each task, and end the task
    when `act` returns.
    """
    consumers = [fleet.client.consumer(queue) for _ in range(CONSUMERS)]

    def consume(consumer: rota.Consumer) -> None:
        with consumer:
            for task in consumer:
                with task:
                    act(task)

    with ThreadPoolExecutor(CONSUMERS) as pool:
        running = [pool.submit(consume, consumer) for consumer in consumers]
        try:
            yield
        finally:
            for consumer in consumers:
                consumer.stop()
    for each in running:
        each.result()


def most_at_once(spans: list[tuple[float, float]]) -> int:
    """Return the largest number of runs that overlapped at any time. Each span has the start and end time of a run."""
    steps = sorted([(began, 1) for began, _ in spans] + [(ended, -1) for _, ended in spans])
    return max(accumulate(step for _, step in steps))


def test_consumers_and_workers_share_queues_and_caps_without_duplicates(
    fleets: Fleets, redis_client: "redis.Redis"
) -> None:
    def done() -> int:
        return int(redis_client.hget(Keys(fleet.namespace).totals, "done") or 0)

    fleet = fleets.start(workers=2, tiers=[["default", "capped"]], queues={"capped": {"cap": CAP}})
    taken: dict[str, list[str]] = {}
    with consuming(
        fleet, "default", lambda task: taken.setdefault(threading.current_thread().name, []).append(task.id)
    ):
        handles = fleet.client.enqueue_many(rota.Call("note", queue="default") for _ in range(TASKS))
        until(lambda: done() == TASKS)
    by_workers = [line.id for line in fleet.journal("end")]
    by_consumers = [task_id for ids in taken.values() for task_id in ids]
    assert sorted(by_workers + by_consumers) == sorted(handle.id for handle in handles)
    assert by_workers
    assert len(taken) == CONSUMERS

    spans: list[tuple[float, float]] = []

    def spin(_: rota.LeasedTask) -> None:
        began = time.time()
        time.sleep(0.01)
        spans.append((began, time.time()))

    with consuming(fleet, "capped", spin):
        fleet.client.enqueue_many(rota.Call("spin", args=["capped", 0.01], queue="capped") for _ in range(CAPPED_TASKS))
        until(lambda: done() == TASKS + CAPPED_TASKS)
    starts = {line.id: line.at for line in fleet.journal("start", label="capped")}
    of_workers = [(starts[line.id], line.at) for line in fleet.journal("end", label="capped")]
    assert len(spans + of_workers) == CAPPED_TASKS
    assert spans
    assert most_at_once(spans + of_workers) <= CAP
    assert fleet.books_balance()
