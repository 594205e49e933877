"""The checks and decisions that are made before an enqueue is sent, and that turn a call into the arguments of the
script.

All functions are pure, except that they make new ids and compare `at` with the clock.
"""

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from rota.durations import MICROSECONDS, microseconds, not_negative_seconds, positive_seconds, unix_microseconds
from rota.errors import InvalidName, PayloadTooLarge, RotaError
from rota.foreign_names import nearest
from rota.protocol.body import Body, encode_body
from rota.protocol.groups import Opening
from rota.protocol.new_tasks import FRONT, NewMember, NewTask, follow_text
from rota.protocol.signatures import NOT_BEFORE
from rota.tasks.arguments import check_arguments, check_key
from rota.tasks.call import Call, CallChain, CallGroup, calls_of, check_link, check_member, why_no_call
from rota.tasks.options import (
    TaskOptions,
    Unique,
    check_boolean,
    check_queue,
    check_retries,
    check_unique,
    require_name,
)
from rota.tasks.registry import Registry, default_registry

if TYPE_CHECKING:
    from rota.tasks.keyring import Keyring
    from rota.tasks.typed_arguments import TypedArguments

H = TypeVar("H")

KIB = 1024
_LONGEST_WAIT_US = 3653 * 86_400 * MICROSECONDS  # Ten years, the same limit as in lua/adopt_scheduled.lua.
_KEY_HEX_DIGITS = 32
# Two bits of this hexadecimal digit contain the variant of the UUID.
_VARIANT = {f"{digit:x}": f"{digit & 3 | 8:x}" for digit in range(16)}
_UNDECLARED = TaskOptions()

carried: Final[ContextVar[dict[str, Any]]] = ContextVar("rota_carried", default={})  # noqa: B039 - never written to
"""Extra data, for example a trace context, that is added to every body created in the current context."""

# The positional and keyword arguments, bound to the parameters of the function.
_Bound = tuple[Sequence[Any], Mapping[str, Any]]


def prepare(call: Call[Any], registry: Registry, max_payload_kb: int, keyring: "Keyring | None" = None) -> NewTask:
    """Check a call and turn it into a NewTask. With a keyring, its body is signed.

    Raises:
        InvalidName, InvalidArguments, PayloadTooLarge: If a name, the arguments or the size is not valid.
        ValueError: If an option is not valid, or two options exclude each other.
        TypeError: If `call` is not a call, or an option has a wrong type.
    """
    try:
        name = call.name
        args = call.args
        kwargs = call.kwargs
    except AttributeError:
        raise TypeError(why_no_call(call)) from None
    task = registry.get(name) if isinstance(name, str) else None
    if task is None:  # If the task is declared, its name has already been checked.
        require_name("task name", name)
        typed = None
        options = _UNDECLARED
    else:
        typed = task.typed
        options = task.options
    task_id = fresh_id() if call.id is None else require_name("id", call.id)
    if typed is not None:
        args, kwargs = typed.dump(args, kwargs)
    check_arguments(name, args, kwargs, task)
    bound = (args, kwargs) if task is None else task.bind(args, kwargs)
    queue = options.queue if task is not None and call.queue is None else _queue(call, registry)
    due = _due(call)
    body = _encode(call, Body(task_id, queue, name, list(args), dict(kwargs)), due, max_payload_kb, keyring)
    if call.front is not False and check_boolean(call.front, "front"):
        due += FRONT
    foreign = name if task is None or task.function.__module__ == "__main__" else ""
    return NewTask(task_id, queue, body, due, *_unique(call, options, queue, bound, typed), foreign)


def _encode(call: Call[Any], body: Body, due: str, max_payload_kb: int, keyring: "Keyring | None") -> bytes:
    """Return the encoded body with the options of the call. With a keyring, the body is signed together with the time
    before which the task must not start."""
    body.options = _body_options(call)
    body.extra = carried.get()
    if due and keyring is not None:
        body.extra = {**body.extra, NOT_BEFORE: _not_before_us(due)}
    raw = encode_body(body)
    if len(raw) > max_payload_kb * KIB:
        raise PayloadTooLarge(
            f"{body.name}: the body of the task has {len(raw):,} bytes, but the limit is {max_payload_kb} KiB "
            "(max_payload_kb): store the data elsewhere and pass a reference to it"
        )
    return raw if keyring is None else keyring.sign(raw)


def prepare_each(
    calls: Iterable[Call[Any]], registry: Registry, max_payload_kb: int, keyring: "Keyring | None" = None
) -> Iterator[NewTask]:
    """Check many calls and turn each into a NewTask.

    Raises the errors of `prepare`. The message then contains the number of the call, counted from 0.
    """
    for number, call in enumerate(calls):
        try:
            yield prepare(call, registry, max_payload_kb, keyring)
        except (RotaError, TypeError, ValueError) as error:
            if len(error.args) == 1:  # The number can be added only if the message is the error's only argument.
                error.args = (f"calls[{number}]: {error}",)
            raise


def in_sending_order(tasks: Sequence[NewTask]) -> tuple[Sequence[NewTask], Callable[[list[H]], list[H]]]:
    """Return the tasks in the order in which they must be sent, and a function that undoes the reordering.

    The function takes a list of results in sending order, and returns them in the order of `tasks`.
    """
    order = sending_order(tasks)
    if order is None:
        return tasks, lambda things: things
    return [tasks[at] for at in order], lambda things: [things[at] for at in _inverse(order)]


def _inverse(order: Sequence[int]) -> list[int]:
    return sorted(range(len(order)), key=order.__getitem__)


def sending_order(tasks: Sequence[NewTask]) -> list[int] | None:
    """Return the indexes of the tasks in the order in which the tasks must be sent, or None if that is the given order.

    A task with `front=True` goes to the head of its lane, before those sent earlier. Therefore such tasks are sent in
    reverse order.
    """
    fronts = [at for at, task in enumerate(tasks) if task.due[-1:] == FRONT]
    if not fronts:
        return None
    return [*sorted(set(range(len(tasks))).difference(fronts)), *reversed(fronts)]


def fresh_id() -> str:
    """Return a random UUID (version 4), in a third of the time that the `uuid` module takes."""
    digits = os.urandom(16).hex()
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{_VARIANT[digits[16]]}{digits[17:20]}-{digits[20:]}"


def _queue(call: Call[Any], registry: Registry) -> str:
    if call.queue is None:
        near = nearest(call.name, [each.name for each in registry])
        raise InvalidName(
            f"{call.name}: no task with that name is declared in this process{near or ':'} if a fleet declares this "
            'task, pass its queue, for example queue="default"'
        )
    return check_queue(call.queue)


def _body_options(call: Call[Any]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if call.retries is not None:
        options["retries"] = check_retries(call.retries)
    if call.expires is not None:
        options["expires"] = positive_seconds(call.expires, "expires")
    if call.result_ttl is not None:
        options["result_ttl"] = not_negative_seconds(call.result_ttl, "result_ttl")
    return options


def _due(call: Call[Any]) -> str:
    if call.at is not None:
        if call.delay is not None:
            raise ValueError(f"{call.name}: pass either delay or at, not both")
        at_us = unix_microseconds(call.at, "at")
        _require_near(call, f"at={call.at!r}", at_us - time.time() * MICROSECONDS)
        return f"@{at_us}" if at_us > 0 else ""
    if call.delay is None:
        return ""
    delay_us = microseconds(call.delay, "delay")
    if delay_us < 0:
        raise ValueError(f"{call.name}: delay must be 0 seconds or more, got {call.delay!r}")
    _require_near(call, f"delay={call.delay!r}", delay_us)
    return f"+{delay_us}" if delay_us else ""


def _not_before_us(due: str) -> int:
    """Return the Unix time in microseconds before which a task with this due time must not start."""
    us = int(due[1:])
    return us if due[0] == "@" else round(time.time() * MICROSECONDS) + us


def _require_near(call: Call[Any], what: str, wait_us: float) -> None:
    # Such a long delay probably has the wrong unit. Without this check, nobody would notice the mistake until the task
    # was due.
    if wait_us > _LONGEST_WAIT_US:
        raise ValueError(
            f"{call.name}: {what} is more than ten years ahead: was it computed in milliseconds instead of seconds?"
        )


def _unique(
    call: Call[Any], options: TaskOptions, queue: str, bound: _Bound, typed: "TypedArguments | None"
) -> tuple[str, int]:
    # Returns the unique key, or "" if there is none, and the number of milliseconds for which it is held. 0 means until
    # the task has ended.
    unique = options.unique if call.unique is None else check_unique(call.unique)
    if not unique:
        if call.unique_for is not None:
            raise ValueError(f"{call.name}: unique_for has no effect without unique=True: pass both")
        return "", 0
    unique_for = options.unique_for if call.unique_for is None else positive_seconds(call.unique_for, "unique_for")
    hold_ms = 0 if unique_for is None else max(1, round(unique_for * 1000))
    return _unique_key(call.name, unique, queue, bound, typed), hold_ms


def _unique_key(name: str, unique: Unique, queue: str, bound: _Bound, typed: "TypedArguments | None") -> str:
    # The key is made from the bound arguments, so that f(1) and f(x=1) are the same call.
    args, kwargs = bound if typed is None else typed.load(*bound)
    if callable(unique):
        what = unique(*args, **kwargs)
    else:
        what = [list(args), dict(kwargs)] if typed is None else typed.ordered(args, kwargs)
    check_key(name, what)
    text = json.dumps([queue, name, what], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:_KEY_HEX_DIGITS]


_NOT_UNIQUE: Final = (
    "another task may hold its key by the time the chain or group enqueues it, and no caller could receive the error"
)


def check_chain(calls: Sequence[Call[Any]]) -> None:
    """Check the calls of a chain.

    Raises TypeError if an item is not a call, and ValueError if there are no calls or a call after the first has the
    option `unique`.
    """
    for at, call in enumerate(calls):
        check_link(call, f"calls[{at}]")
    if not calls:
        raise ValueError("a chain needs at least one call, as in rota.chain(resize.call(7), notify.call(7))")
    for at, call in enumerate(calls[1:], 1):
        _check_not_unique(call, f"calls[{at}]")


def check_group(then: Any, on_dead: Any, group_id: Any) -> None:
    """Check the calls that follow a group, and the group's id: see `group`, which raises the same errors."""
    for option, last in (("then", then), ("on_dead", on_dead)):
        if last is None:
            continue
        check_member(last, option)
        for call in calls_of(last):
            _check_not_unique(call, option)
    if group_id is not None:
        require_name("id", group_id)


def _check_not_unique(call: Call[Any], where: str) -> None:
    """Raise ValueError if the option `unique` is set for the call itself or in the declaration of its task."""
    task = default_registry.get(call.name) if isinstance(call.name, str) else None
    if call.unique:
        raise ValueError(f"{where}: a call that follows another one cannot be unique: {_NOT_UNIQUE}")
    if call.unique is None and task is not None and task.options.unique:
        raise ValueError(
            f"{where}: {call.name} is declared unique, but a call that follows another one cannot be unique: "
            f"{_NOT_UNIQUE}. Use {call.name}.using(unique=False).call(...)"
        )


@dataclass(frozen=True, slots=True)
class Checks:
    """The checks of calls, chains and groups, with the settings of one client."""

    registry: Registry
    max_payload_kb: int
    keyring: "Keyring | None" = None

    def member(self, member: Call[Any] | CallChain) -> NewMember:
        """Check a call or a chain, and return it in the form that is sent.

        Raises the errors of `prepare`. For a chain, the message contains the number of the call.
        """
        first, *rest = self._tasks(member)
        return NewMember(first, follow_text(rest))

    def _tasks(self, member: Call[Any] | CallChain) -> Iterable[NewTask]:
        if isinstance(member, CallChain):
            return prepare_each(member.calls, self.registry, self.max_payload_kb, self.keyring)
        return [prepare(member, self.registry, self.max_payload_kb, self.keyring)]

    def members(self, members: Sequence[Call[Any] | CallChain]) -> Iterator[NewMember]:
        """Yield the members of a group. Raises the errors of `member`. The message then contains the number of the
        member."""
        for at, member in enumerate(members):
            try:
                yield self.member(member)
            except (RotaError, TypeError, ValueError) as error:
                error.args = (f"members[{at}]: {error}",)
                raise

    def all_of(self, what: Any) -> Iterator[NewMember]:
        """Return the members of a chain or a group. Raises the errors of `members`, and TypeError if `what` is
        neither."""
        if isinstance(what, CallChain):
            return iter([self.member(what)])
        if isinstance(what, CallGroup):
            return self.members(what.members)
        raise TypeError(why_no_call(what))

    def opening(self, then: Call[Any] | CallChain | None, on_dead: Call[Any] | CallChain | None) -> Opening:
        """Check the calls that follow a group, and return them in the form that is sent.

        Raises the errors of `prepare`. The message begins with the name of the option, `then` or `on_dead`.
        """
        return Opening(*(self._last(option, last) for option, last in (("then", then), ("on_dead", on_dead))))

    def _last(self, option: str, last: Call[Any] | CallChain | None) -> bytes:
        if last is None:
            return b""
        try:
            return follow_text(self._tasks(last))
        except (RotaError, TypeError, ValueError) as error:
            error.args = (f"{option}: {error}",)
            raise
