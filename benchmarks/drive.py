"""A producer that runs in a contender's own interpreter: `python -m benchmarks.drive APP`.

Each line on standard input is a request in JSON. The producer carries out the request, and replies with the time taken
in seconds. APP is a module with `enqueue(task, *args)`, and optionally `enqueue_many(task, rows)`, `enqueue_at(task,
due, *args)`, `enqueue_many_at(task, due_rows)`, and `startup()`. All of them may be coroutine functions.
"""

import asyncio
import inspect
import itertools
import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any

from benchmarks import probe

MICROSECONDS = 1_000_000
PAUSE_SECONDS = 0.0005
App = Any
DriveRequest = dict[str, Any]
_loop = asyncio.new_event_loop()


def _call_each(function: Callable[..., Any], calls: Iterable[tuple[Any, ...]]) -> None:
    if not inspect.iscoroutinefunction(function):
        for call in calls:
            function(*call)
        return

    async def run() -> None:
        for call in calls:
            await function(*call)

    _loop.run_until_complete(run())


def _timed(function: Callable[..., Any], calls: Iterable[tuple[Any, ...]]) -> float:
    started = time.perf_counter()
    _call_each(function, calls)
    return time.perf_counter() - started


def each(app: App, request: DriveRequest) -> float:
    """Enqueue `count` tasks with one call each, and return the duration in seconds."""
    return _timed(app.enqueue, [(request["task"], number) for number in range(request["count"])])


def many(app: App, request: DriveRequest) -> float:
    """Enqueue `count` tasks with one call per batch, or one call per task if the contender has no bulk call. Return the
    duration in seconds.
    """
    function = getattr(app, "enqueue_many", None)
    if function is None:
        return each(app, request)
    count = request["count"]
    batch = request["batch"]
    rows = [[(number,) for number in range(start, min(start + batch, count))] for start in range(0, count, batch)]
    return _timed(function, [(request["task"], row) for row in rows])


def later(app: App, request: DriveRequest) -> float:
    """Enqueue a task for each of the Unix times in `dues`, and return the duration in seconds. The argument of each
    task is its due time in microseconds.
    """
    rows = [(due, round(due * MICROSECONDS)) for due in request["dues"]]
    function = getattr(app, "enqueue_many_at", None)
    if function is not None:
        return _timed(function, [(request["task"], rows)])
    return _timed(app.enqueue_at, [(request["task"], *row) for row in rows])


def pile(app: App, request: DriveRequest) -> float:
    """Enqueue many tasks whose due times are evenly spread over a number of seconds, with 500 tasks per call if the
    contender has a bulk call. The argument of each task is its due time in microseconds.
    """
    count = request["count"]
    batch = request["batch"]
    dues = (request["due"] + number * request["seconds"] / count for number in range(count))
    rows = ((due, round(due * MICROSECONDS)) for due in dues)
    batches = iter(lambda: list(itertools.islice(rows, batch)), [])
    return _timed(app.enqueue_many_at, ((request["task"], each) for each in batches))


def singly(app: App, request: DriveRequest) -> float:
    """Enqueue single tasks with pauses of 15 to 25 ms. The argument of each task is the time of its call in
    microseconds.
    """
    pauses = random.Random(request["count"])
    started = time.perf_counter()
    for _ in range(request["count"]):
        time.sleep(pauses.uniform(0.015, 0.025))
        _call_each(app.enqueue, [(request["task"], time.time_ns() // 1000)])
    return time.perf_counter() - started


def steadily(app: App, request: DriveRequest) -> float:
    """Enqueue single tasks at a steady rate. The argument of each task is the time of its call in microseconds. A late
    call does not delay the other calls.
    """
    started = time.perf_counter()
    for number in range(request["count"]):
        time.sleep(max(0.0, started + number / request["rate"] - time.perf_counter()))
        _call_each(app.enqueue, [(request["task"], time.time_ns() // 1000)])
    return time.perf_counter() - started


def _at_once(app: App, task: str, rows: list[tuple[int]]) -> None:
    """Enqueue these tasks, with one call if the contender has a bulk call."""
    function = getattr(app, "enqueue_many", None)
    calls = [(task, rows)] if function else [(task, *row) for row in rows]
    _call_each(function or app.enqueue, calls)


def press(app: App, request: DriveRequest) -> float:
    """Enqueue at least `count` tasks, but pause while more than one batch waits. So the fleet always has work, and the
    producer leaves most of the processor time to the fleet.
    """
    before = _counted()
    count = request["count"]
    batch = request["batch"]
    started = time.perf_counter()
    sent = 0
    while sent < count:
        if sent - (_counted() - before) > batch:
            time.sleep(PAUSE_SECONDS)
            continue
        _at_once(app, request["task"], [(time.time_ns() // 1000,)] * batch)
        sent += batch
    return time.perf_counter() - started


def _counted() -> int:
    return sum(probe.words(probe.FOLDER)[0::2])


def come(app: App, request: DriveRequest) -> float:
    """Enqueue tasks that arrive randomly at this rate, whether or not the fleet keeps up (a Poisson process). Return
    their number. The argument of each task is its arrival time in microseconds. Tasks that arrive during a call are
    sent with the next call."""
    chance = random.Random(request["rate"])
    at = time.time()
    came = 0
    end = at + request["seconds"]
    while at < end:
        time.sleep(max(0.0, at - time.time()))
        now = time.time()
        rows: list[tuple[int]] = []
        while at <= now and len(rows) < request["batch"]:
            rows.append((round(at * MICROSECONDS),))
            at += chance.expovariate(request["rate"])
        _at_once(app, request["task"], rows)
        came += len(rows)
    return came


VERBS: dict[str, Callable[[App, DriveRequest], float]] = {
    "each": each,
    "many": many,
    "later": later,
    "pile": pile,
    "singly": singly,
    "steadily": steadily,
    "press": press,
    "come": come,
}


def main() -> None:
    """Serve requests until standard input ends. Whatever an app prints goes to standard error."""
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    asyncio.set_event_loop(_loop)
    app = import_module(sys.argv[1])
    _call_each(getattr(app, "startup", int), [()])
    print("ready", file=replies)
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(VERBS[request["verb"]](app, request)), file=replies)


if __name__ == "__main__":
    main()
