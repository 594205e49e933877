"""The requests that people make on the status page: dead tasks (`/dead.json`), single tasks (`/task.json`), and actions
(`POST /actions`).

The arguments of tasks are not shown, because they may be confidential and anyone who can reach the port can read these
pages. An action is performed only if `[http] actions` is set and the request contains the token. Like a command of the
command line, it makes one transition of the protocol or one request to the master. Every action is logged.
"""

import json
import socket
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import parse_qs

from rota.client.queues import queued
from rota.client.status import status_of
from rota.protocol.keys import fault_in_name
from rota.protocol.replies import CancelStatus
from rota.protocol.scans import find_task
from rota.protocol.scripts import RunCall, ScriptCall, Steps, execute, follow
from rota.protocol.store import Store
from rota.protocol.task_states import State
from rota.telemetry import log, log_events
from rota_supervisor.control.port import exchange
from rota_supervisor.exporter.exporter_settings import ExporterSettings
from rota_supervisor.exporter.http_connection import Endpoint, HttpRequest, HttpResponse, json_response
from rota_supervisor.exporter.redis_thread import NoReply, RedisThread
from rota_supervisor.facts import facts_of, task_facts
from rota_supervisor.master_snapshot import Json

MASTER_SECONDS: Final = 1.0
_MAX_SHOWN: Final = 80  # the maximum length of a value in an error
_JSON: Final = "application/json"
_CANCELLED: Final = {
    CancelStatus.CANCELLED: "task {} was cancelled",
    CancelStatus.RUNNING: "task {} is running: its cancellation was requested",
    CancelStatus.DEAD: "task {} is dead, so it cannot be cancelled",
}

ActionFields = Mapping[str, Any]
T = TypeVar("T")


class Verb(NamedTuple):
    """A kind of action: the method that performs it, and its arguments."""

    act: Callable[[ActionFields], str]
    keys: tuple[str, ...]  # the keys that the action can have besides `verb`


class PageRequestRefused(Exception):
    """A request that cannot be fulfilled. The message of the exception states why, and what to do."""

    def __init__(self, text: str, status: HTTPStatus = HTTPStatus.BAD_REQUEST) -> None:
        super().__init__(text)
        self.status = status


def query_redis(redis: RedisThread | None, query: Callable[[RunCall], T], otherwise: str = ": try again") -> T:
    """Return the result of `query`, which calls Redis. Raises PageRequestRefused if there is no result.

    `otherwise`: advice that ends the error message if Redis does not reply in time.
    """
    if redis is None:
        why = 'this node does not query Redis: [metrics] cluster is "never"'
        raise PageRequestRefused(why, HTTPStatus.SERVICE_UNAVAILABLE)
    try:
        return redis.call(query)
    except NoReply:
        raise PageRequestRefused(f"Redis did not reply in time{otherwise}", HTTPStatus.SERVICE_UNAVAILABLE) from None


class Actions:
    """The actions of the status page, which are performed in the renderer's thread. `redis` is None if this node must
    not query Redis."""

    def __init__(self, settings: ExporterSettings, redis: RedisThread | None) -> None:
        self._is_on = settings.actions
        self._control_socket = settings.control_socket
        self._store = Store(settings.server.namespace)
        self._redis = redis
        self._verbs = {
            "pause": Verb(self._pause, ("queue",)),
            "resume": Verb(self._resume, ("queue",)),
            "revive": Verb(self._revive, ("task_id",)),
            "cancel": Verb(self._cancel, ("task_id",)),
            "scale": Verb(self._scale, ("pool", "workers")),
        }

    def respond(self, request: HttpRequest) -> HttpResponse:
        """Perform an action. The response is `{"ok": true, "text": ...}`, or `{"ok": false, "error": ...}`."""
        try:
            action = self._action_in(request)
            text = self._verbs[action["verb"]].act(action)
        except PageRequestRefused as refused:
            return json_response({"ok": False, "error": str(refused)}, refused.status)
        log.logger().info(log_events.EXPORTER_ACTION, **action)
        return json_response({"ok": True, "text": text})

    def _action_in(self, request: HttpRequest) -> ActionFields:
        if not self._is_on:
            raise PageRequestRefused("actions are turned off: set [http] actions = true", HTTPStatus.FORBIDDEN)
        if request.headers.get("content-type", "").partition(";")[0].strip() != _JSON:
            raise PageRequestRefused(f"send it as {_JSON}", HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
        try:
            action: Any = json.loads(request.body)
        except (ValueError, RecursionError):
            action = None
        verb = action.get("verb") if isinstance(action, dict) else None
        if not isinstance(verb, str) or verb not in self._verbs:
            raise PageRequestRefused(f'an action is one JSON object with a "verb", one of {", ".join(self._verbs)}')
        keys = self._verbs[verb].keys
        if unknown := sorted(action.keys() - {"verb", *keys}):
            raise PageRequestRefused(f"{verb} takes {' and '.join(keys)}, not {_shown(unknown[0])}")
        return {"verb": verb, **{key: action[key] for key in keys if key in action}}

    def _pause(self, action: ActionFields) -> str:
        queue = _name_in(action, "queue")
        return f"{queue} is paused" if self._run(self._store.pause(queue)) else f"{queue} was already paused"

    def _resume(self, action: ActionFields) -> str:
        queue = _name_in(action, "queue")
        return f"{queue} is resumed" if self._run(self._store.resume(queue)) else f"{queue} was not paused"

    def _revive(self, action: ActionFields) -> str:
        task_id = _name_in(action, "task_id")
        if not self._run(self._store.revive([task_id])):
            raise PageRequestRefused(
                f"task {task_id} is not dead: it may already have been revived or purged", HTTPStatus.CONFLICT
            )
        return f"task {task_id} is back in its queue"

    def _cancel(self, action: ActionFields) -> str:
        task_id = _name_in(action, "task_id")
        word = self._run(self._store.cancel(task_id))
        if word not in _CANCELLED:
            raise PageRequestRefused(f"no task {task_id} is waiting or running", HTTPStatus.CONFLICT)
        return _CANCELLED[word].format(task_id)

    def _scale(self, action: ActionFields) -> str:
        """Ask the master to run a number of workers in a pool. The master checks whether the pool exists and the number
        is permitted.
        """
        requested: dict[str, int | str] = {"workers": _count_in(action, "workers")}
        if action.get("pool") is not None:
            requested["pool"] = _name_in(action, "pool")
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connecting:
                connecting.settimeout(MASTER_SECONDS)
                connecting.connect(self._control_socket)
                reply = exchange(connecting, {"verb": "scale", **requested}, MASTER_SECONDS)
        except (OSError, ValueError) as error:
            raise PageRequestRefused(f"the master did not reply: {error}", HTTPStatus.SERVICE_UNAVAILABLE) from error
        if not reply.get("ok"):
            raise PageRequestRefused(str(reply.get("error")), HTTPStatus.CONFLICT)
        return f"requested {requested['workers']} workers"

    def _run(self, command: ScriptCall[T]) -> T:
        again = ", so the action may have been performed: check this before you repeat the action"
        return query_redis(self._redis, lambda run: run(command), again)


def _count_in(action: ActionFields, key: str) -> int:
    number = action.get(key)
    if type(number) is not int or number < 0:  # `isinstance(number, int)` would accept True.
        raise PageRequestRefused(f'{action["verb"]} needs "{key}", a whole number of at least 0, got {_shown(number)}')
    return number


def _name_in(action: ActionFields, key: str) -> str:
    name = action.get(key)
    if not isinstance(name, str):
        raise PageRequestRefused(f'{action["verb"]} needs "{key}", a name')
    if fault := fault_in_name(key, name):
        raise PageRequestRefused(fault)
    return name


def _shown(value: object) -> str:
    return json.dumps(value)[:_MAX_SHOWN]


SHOWN: Final = 50
SEARCH_SECONDS: Final = 0.25  # the time limit for finding one page of a queue's dead tasks
_CHUNK: Final = 200
_MAX_DIGITS: Final = 12


class TaskPages:
    """The pages about tasks. `redis` is None if this node must not query Redis."""

    def __init__(self, namespace: str, redis: RedisThread | None) -> None:
        self._store = Store(namespace)
        self._redis = redis

    def respond(self, request: HttpRequest) -> HttpResponse:
        """Return the page for a request as JSON, or `{"error": ...}` if the request is refused."""
        query = self._dead if request.path == "/dead.json" else self._task
        try:
            return json_response(query(request))
        except PageRequestRefused as refused:
            return json_response({"error": str(refused)}, refused.status)

    def _dead(self, request: HttpRequest) -> Json:
        """Return a page of dead tasks for `?queue=NAME&cursor=CURSOR`. Both arguments are optional."""
        queue = _argument(request, "queue")
        cursor = _argument(request, "cursor") or "0"
        if not (cursor.isascii() and cursor.isdigit() and len(cursor) <= _MAX_DIGITS):
            raise PageRequestRefused("cursor must be the value from the previous page, or must be left out")
        steps = dead_tasks(self._store, queue, int(cursor))
        return query_redis(self._redis, lambda run: follow(run, steps))

    def _task(self, request: HttpRequest) -> Json:
        """Return one task for `?id=ID`."""
        task_id = _argument(request, "id")
        if fault := fault_in_name("id", task_id):
            raise PageRequestRefused(fault)
        found = query_redis(self._redis, lambda run: status_of(task_id, follow(run, find_task(self._store, task_id))))
        if found.state is State.UNKNOWN:
            raise PageRequestRefused(f"the server knows nothing about this task: {found.why}", HTTPStatus.NOT_FOUND)
        return task_facts(found)


def dead_tasks(store: Store, queue: str, offset: int) -> Steps[Json]:
    """Return a page of dead tasks of a queue ("" for all queues), the latest first. `offset`: the position among all
    dead tasks at which to start.

    `cursor` in the result is the offset of the next page, or None on the last page. A page can be short or even empty
    if many dead tasks of other queues lie in between.
    """
    deadline = time.monotonic() + SEARCH_SECONDS
    rows: list[Json] = []
    cursor: int | None = offset
    while cursor is not None and len(rows) < SHOWN and time.monotonic() < deadline:
        page = yield from execute(store.peek(State.DEAD, queue, "", cursor, _CHUNK if queue else SHOWN))
        rows += [facts_of(queued(task, State.DEAD, page.now_us)) for task in page.tasks]
        cursor = page.next_offset
    return {"queue": queue, "tasks": rows, "cursor": None if cursor is None else str(cursor)}


def requests_of_people(settings: ExporterSettings, redis: RedisThread | None) -> Mapping[str, Endpoint]:
    """Return the endpoints for these requests, by path. `redis` is None if this node must not query Redis."""
    tasks = TaskPages(settings.server.namespace, redis)
    return {"/actions": Actions(settings, redis).respond, "/dead.json": tasks.respond, "/task.json": tasks.respond}


def _argument(request: HttpRequest, name: str) -> str:
    return parse_qs(request.query).get(name, [""])[0]
