"""`/dead.json` and `/task.json`: dead tasks and single ones, for people who look at them.

They are asked for one by one, so nobody pays for them who does not look. Arguments are not shown: whoever reaches the
port may read these pages, and what a task is called with is the application's.
"""

import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Final, TypeVar
from urllib.parse import parse_qs

from rota.client.peek import queued
from rota.client.status import State, TaskStatus, status_of
from rota.protocol.command import RunCommand, Steps, ask, follow
from rota.protocol.names import fault_in_name
from rota.protocol.store import Store
from rota.protocol.task_walk import find_task
from rota_supervisor.exporter.asking import NoAnswer, RedisThread
from rota_supervisor.exporter.client import Answer, HttpRequest, json_answer
from rota_supervisor.facts import facts_of, task_facts
from rota_supervisor.notice import Json

T = TypeVar("T")

SHOWN: Final = 50
LOOK_SECONDS: Final = 0.25  # for those of one queue among all
_PORTION: Final = 200
_MOST_DIGITS: Final = 12


class TaskPages:
    """What is answered about tasks. `redis` is None where this node is not to ask it."""

    def __init__(self, namespace: str, redis: RedisThread | None) -> None:
        self._store = Store(namespace)
        self._redis = redis

    def answer(self, request: HttpRequest) -> Answer:
        return self._dead(request) if request.path == "/dead.json" else self._task(request)

    def _dead(self, request: HttpRequest) -> Answer:
        """`?queue=NAME&cursor=CURSOR`, both may be left out."""
        queue, cursor = _argument(request, "queue"), _argument(request, "cursor") or "0"
        if not (cursor.isascii() and cursor.isdigit() and len(cursor) <= _MOST_DIGITS):
            return _fault(HTTPStatus.BAD_REQUEST, "cursor is what the page before said, or left out")
        steps = dead_tasks(self._store, queue, int(cursor))
        return self._asked(lambda run: follow(run, steps), json_answer)

    def _task(self, request: HttpRequest) -> Answer:
        """`?id=ID`."""
        task_id = _argument(request, "id")
        if fault := fault_in_name("id", task_id):
            return _fault(HTTPStatus.BAD_REQUEST, fault)
        return self._asked(lambda run: status_of(task_id, follow(run, find_task(self._store, task_id))), _of_task)

    def _asked(self, look: Callable[[RunCommand], T], show: Callable[[T], Answer]) -> Answer:
        if self._redis is None:
            return _fault(HTTPStatus.SERVICE_UNAVAILABLE, 'this node does not ask Redis: [metrics] cluster is "never"')
        try:
            found = self._redis.ask(look)
        except NoAnswer:
            return _fault(HTTPStatus.SERVICE_UNAVAILABLE, "Redis did not answer in time: ask again")
        return show(found)


def dead_tasks(store: Store, queue: str, offset: int) -> Steps[Json]:
    """Dead tasks of a queue ("" for all), the latest first, from this place of the dead set on. `cursor`: where the
    next page begins, None behind the last. A page may be short, even empty, where others' tasks stand between."""
    deadline = time.monotonic() + LOOK_SECONDS
    rows: list[Json] = []
    cursor: int | None = offset
    while cursor is not None and len(rows) < SHOWN and time.monotonic() < deadline:
        page = yield from ask(store.peek(State.DEAD, queue, "", cursor, _PORTION if queue else SHOWN))
        rows += [facts_of(queued(task, State.DEAD, page.now_us)) for task in page.tasks]
        cursor = page.next_offset
    return {"queue": queue, "tasks": rows, "cursor": None if cursor is None else str(cursor)}


def _of_task(found: TaskStatus) -> Answer:
    if found.state is State.UNKNOWN:
        return _fault(HTTPStatus.NOT_FOUND, f"nothing is known of this task: {found.why}")
    return json_answer(task_facts(found))


def _argument(request: HttpRequest, name: str) -> str:
    return parse_qs(request.query).get(name, [""])[0]


def _fault(status: HTTPStatus, error: str) -> Answer:
    return json_answer({"error": error}, status)
