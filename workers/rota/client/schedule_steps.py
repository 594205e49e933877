"""The requests with which clients read and change schedules, whether a node declared them or a client created them."""

import os
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from rota.client.preparation import KIB
from rota.errors import InvalidName, PayloadTooLarge, ScheduleDeclared, Unavailable, UnknownSchedule
from rota.foreign_names import nearest
from rota.protocol.schedule_store import (
    SCHEDULES_A_PAGE,
    PauseStatus,
    PutStatus,
    RemoveStatus,
    RunStatus,
    SchedulePage,
    ScheduleStore,
)
from rota.protocol.scripts import ScriptCall, Steps, execute
from rota.protocol.signatures import schedule_kind
from rota.schedules.occurrences import body_of
from rota.schedules.schedule import Schedule, encode_schedule
from rota.schedules.schedule_status import FoundSchedule, ScheduleStatus, Times, read_schedule
from rota.tasks.arguments import check_arguments
from rota.tasks.options import require_name
from rota.tasks.periodic import Periodic, dumped
from rota.tasks.registry import default_registry

if TYPE_CHECKING:
    from rota.tasks.keyring import Keyring
    from rota.tasks.registry import TaskDefinition

# How often to try. An attempt fails if the record changes after it was read and before the call that uses it.
_TRIES: Final = 20
_RANDOM_BYTES: Final = 8


def all_schedules(store: ScheduleStore) -> Steps[list[FoundSchedule | ScheduleStatus]]:
    """Return all schedules, ordered by their next occurrence.

    For a record that is not valid, the list contains a ScheduleStatus with the error.
    """
    found: list[FoundSchedule | ScheduleStatus] = []
    offset = 0
    page = SchedulePage(0, 1, ())
    while offset < page.total:
        page = yield from execute(store.page(offset))
        offset += SCHEDULES_A_PAGE
        found += [read_schedule(kept, page.now_us) for kept in page.schedules]
    return found


def find_schedule(store: ScheduleStore, name: str) -> Steps[FoundSchedule | ScheduleStatus | None]:
    """Return the schedule with this name, or None if there is none."""
    page = yield from execute(store.find([require_name("the name of a schedule", name)]))
    return read_schedule(page.schedules[0], page.now_us) if page.schedules else None


def run_schedule_now(store: ScheduleStore, name: str, keyring: "Keyring | None" = None) -> Steps[tuple[str, bool]]:
    """Enqueue an extra occurrence, and return the id of its task, and False. With a keyring, verify the schedule and
    sign the task.

    If occurrences may not overlap and an earlier one has not ended, enqueue nothing, and return the id of the earlier
    task, and True. Raises UnknownSchedule if there is no schedule with this name, Unavailable if the schedule changed
    during every attempt, and SignatureError if the schedule's signature is wrong.
    """
    sign = None if keyring is None else keyring.sign
    task_id = f"{name}:{os.urandom(_RANDOM_BYTES).hex()}"
    for _ in range(_TRIES):
        found = yield from require_schedule(store, name)
        schedule = found.schedule
        may_overlap = found.schedule.overlap == "queue"
        if keyring is not None:
            keyring.verify(found.record.text, schedule_kind(name))
        body = body_of(schedule, task_id, sign=sign)
        again = store.run(found.kept, schedule.queue, task_id, body, may_overlap=may_overlap)
        status, other = yield from execute(again)
        if status is not RunStatus.CHANGED:
            return (other, True) if status is RunStatus.OVERLAPS else (task_id, False)
    raise Unavailable(
        f"schedule {name!r} was changed by another process during each of {_TRIES} attempts, so nothing was enqueued: "
        "try again"
    )


def require_schedule(store: ScheduleStore, name: str) -> Steps[FoundSchedule]:
    """Return the schedule with this name. Raises UnknownSchedule if there is none."""
    found = yield from find_schedule(store, name)
    if isinstance(found, FoundSchedule):
        return found
    raise (yield from unknown_schedule(store, name, found.error if found else ""))


def unknown_schedule(store: ScheduleStore, name: str, why: str = "") -> Steps[UnknownSchedule]:
    """Return the error for a name that no schedule has.

    If `why` is given, the message states it as the reason. Otherwise the message suggests a similar name, which it
    looks for among the schedules that occur next.
    """
    if why:
        return UnknownSchedule(f"there is no schedule {name!r}: {why}")
    page = yield from execute(store.page(0))
    near = nearest(name, [kept.name for kept in page.schedules])
    return UnknownSchedule(f"there is no schedule {name!r}{near or ':'} `rota cron ls` lists all schedules")


class ScheduleSteps:
    """The methods of `Schedules` as steps that do no I/O. See `Schedules` for the results and errors of each method."""

    def __init__(self, namespace: str, max_payload_kb: int, keyring: "Keyring | None" = None) -> None:
        self._store = ScheduleStore(namespace)
        self._max_payload_kb = max_payload_kb
        self._keyring = keyring

    def list(self) -> Steps["list[ScheduleStatus]"]:
        found = yield from all_schedules(self._store)
        return [each.status() if isinstance(each, FoundSchedule) else each for each in found]

    def get(self, name: str) -> Steps[ScheduleStatus | None]:
        found = yield from find_schedule(self._store, name)
        return found.status() if isinstance(found, FoundSchedule) else found

    def upcoming(self, name: str, count: int) -> Steps[Times]:
        return (yield from require_schedule(self._store, name)).upcoming(count)

    def put(self, name: str, task: "TaskDefinition[..., Any] | str", when: Periodic) -> Steps[PutStatus]:
        schedule = _schedule(name, task, when)
        size = len(body_of(schedule, name))
        if size > self._max_payload_kb * KIB:
            raise PayloadTooLarge(
                f"{name}: the body of a task has {size:,} bytes, but the limit is {self._max_payload_kb} KiB"
            )
        text = encode_schedule(schedule)
        if self._keyring is not None:
            text = self._keyring.sign(text, schedule_kind(name))
        status = yield from execute(self._store.put(name, text))
        if status is PutStatus.DECLARED:
            raise _declared(name)
        return status

    def remove(self, name: str) -> Steps[bool]:
        status = yield from execute(self._store.remove(require_name("the name of a schedule", name)))
        if status is RemoveStatus.DECLARED:
            raise _declared(name)
        return status is RemoveStatus.REMOVED

    def pause(self, name: str) -> Steps[bool]:
        return (yield from self._switch(name, self._store.pause))

    def resume(self, name: str) -> Steps[bool]:
        return (yield from self._switch(name, self._store.resume))

    def _switch(self, name: str, switch: Callable[[str], ScriptCall[PauseStatus]]) -> Steps[bool]:
        status = yield from execute(switch(require_name("the name of a schedule", name)))
        if status is PauseStatus.UNKNOWN:
            raise (yield from unknown_schedule(self._store, name))
        return status is not PauseStatus.SAME

    def run_now(self, name: str) -> Steps[tuple[str, bool]]:
        return run_schedule_now(self._store, name, self._keyring)


def _schedule(name: str, task: "TaskDefinition[..., Any] | str", when: Periodic) -> Schedule:
    require_name("the name of a schedule", name)
    if not isinstance(when, Periodic):
        raise TypeError(f"a schedule must be rota.Cron(...) or rota.Every(...), got {when!r}")
    if when.name not in (None, name):
        raise ValueError(f"the schedule is stored under the name {name!r}, but has name={when.name!r}: leave out name=")
    known = default_registry.get(task) if isinstance(task, str) else task
    if not hasattr(known, "bind") and known is not None:
        raise TypeError(
            f"a schedule needs a task or its name, got {task!r}; pass the arguments in rota.Cron(..., args=[7])"
        )
    if known is not None:
        return replace(dumped(known, when), name=name).of(name, known.name, known.options.queue, "client")
    assert isinstance(task, str)
    check_arguments(task, when.args, when.kwargs)
    if when.queue is None:
        raise InvalidName(
            f"{task}: no task with that name is declared in this process, so its queue is unknown: pass the queue, "
            'for example queue="default"'
        )
    return replace(when, name=name).of(name, task, when.queue, "client")


def _declared(name: str) -> ScheduleDeclared:
    return ScheduleDeclared(
        f"schedule {name!r} is declared in the code or the configuration of a node: change it there, or pause it"
    )
