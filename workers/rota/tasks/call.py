"""Calls that can be enqueued, and chains and groups of calls. A call is the name of a task with arguments and
options."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypedDict

from rota.durations import Duration
from rota.foreign_names import FOREIGN_NAMES, fault_in_option
from rota.tasks.options import TaskArguments, Unique

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    # Without the default, rota.Call("resize") would need an annotation. `typing` has such defaults from Python 3.13 on.
    R_co = TypeVar("R_co", covariant=True, default=Any)
else:
    from typing import TypeVar

    R_co = TypeVar("R_co", covariant=True)


class CallOptions(TypedDict, total=False):
    """The options of one call. Options that are not given come from the task's declaration."""

    queue: str | None  # the queue of this task
    delay: Duration | None  # time until the task is due, seconds or timedelta; pass `delay` or `at`, not both
    at: datetime | None  # when the task is due, an aware datetime
    id: str | None  # id of the task; if a live task has this id, nothing is enqueued and the handle has `duplicate` set
    unique: Unique | None  # this and the next four options have the same meaning as in `@rota.task`
    unique_for: Duration | None
    expires: Duration | None
    retries: int | None
    result_ttl: Duration | None
    # Put the task at the head of its lane, now or when it is due; tasks of one `enqueue_many` keep their order.
    front: bool


CALL_OPTIONS: Final = frozenset(CallOptions.__annotations__)


@dataclass(frozen=True)
class Call(Generic[R_co]):
    """A call of a task by its name. `task.call(...)` returns a Call. You can also create one yourself:
    `rota.Call("resize", args=[7])`.

    `R_co` is the type that the task's function returns. The fields after `kwargs` are the same options that `using`
    takes.
    """

    name: str
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    queue: str | None = None
    delay: Duration | None = None
    at: datetime | None = None
    id: str | None = None
    unique: Unique | None = None
    unique_for: Duration | None = None
    expires: Duration | None = None
    retries: int | None = None
    result_ttl: Duration | None = None
    front: bool = False


@dataclass(frozen=True)
class CallChain:
    """Calls that run one after another. The atomic step that ends a call as done also enqueues the next call."""

    calls: tuple[Call[Any], ...]


@dataclass(frozen=True)
class CallGroup:
    """Calls and chains, the members, that run in any order, and a call that follows when all members have ended. The
    atomic step that ends the last member also enqueues the following call, once."""

    members: tuple[Call[Any] | CallChain, ...]
    then: Call[Any] | CallChain | None = None
    on_dead: Call[Any] | CallChain | None = None
    id: str | None = None


class MakesCalls(Protocol):
    """A task, or a task with options. Either can make a call from arguments."""

    def call(self, *args: Any, **kwargs: Any) -> Call[Any]:
        """Return a call with these arguments."""


def plain_call(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Call[Any]:
    """Return `Call(name, args, kwargs)`. This takes a third of the time of the constructor, because it does not set the
    fields that have default values."""
    call: Call[Any] = object.__new__(Call)
    call.__dict__.update(name=name, args=args, kwargs=kwargs)
    return call


def call_of(what: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None, options: CallOptions) -> Call[Any] | None:
    """Return the call that the arguments of a client's `enqueue` describe. Returns None if `what` is not a call but may
    be a chain or a group. Raises TypeError if a Call is given together with arguments or options, or if `what` cannot
    be called."""
    if isinstance(what, Call):
        if args or kwargs or options:
            raise TypeError("a Call already has its arguments and options: pass them where the Call is created")
        return what
    if isinstance(what, str):
        if not CALL_OPTIONS.issuperset(options):
            raise TypeError(fault_in_call_options(options, "enqueue()"))
        return Call(what, args, {} if kwargs is None else kwargs, **options)
    if args or kwargs or options:
        raise TypeError(why_no_call(what))
    return None


def many(calls: Iterable[Call[Any]]) -> Iterable[Call[Any]]:
    """Check the argument of a client's `enqueue_many`, and return it unchanged. Raises TypeError if it is not
    iterable."""
    if not isinstance(calls, Iterable):
        raise TypeError(f"enqueue_many takes many calls, for example [resize.call(7), resize.call(8)], got {calls!r}")
    return calls


def members_of(members: Iterable[Call[Any] | CallChain]) -> tuple[Call[Any] | CallChain, ...]:
    """Return the members of a group as a tuple. Raises TypeError if an item cannot be a member, or if `members` is not
    iterable."""
    if not isinstance(members, Iterable):
        raise TypeError(f"a group takes many calls, for example [resize.call(7), resize.call(8)], got {members!r}")
    found = tuple(members)
    for at, member in enumerate(found):
        check_member(member, f"members[{at}]")
    return found


def calls_of(member: Call[Any] | CallChain) -> Sequence[Call[Any]]:
    """Return the calls of a chain, or a sequence with the call if `member` is a single call."""
    return member.calls if isinstance(member, CallChain) else (member,)


def check_member(member: Any, where: str) -> None:
    """Raise TypeError if the object cannot be a member of a group. The message starts with `where`, for example
    `members[2]`."""
    if isinstance(member, CallGroup):
        raise TypeError(
            f"{where}: a group cannot be a member of another group: enqueue it in the task that is passed as `then`"
        )
    if not isinstance(member, CallChain):
        _check_call(member, where)


def check_link(call: Any, where: str) -> None:
    if isinstance(call, CallChain):
        raise TypeError(f"{where}: a chain cannot be part of another chain: use rota.chain(*first.calls, ...)")
    if isinstance(call, CallGroup):
        raise TypeError(f"{where}: a group cannot be part of a chain: use rota.group([...], then=rota.chain(...))")
    if isinstance(call, list | tuple):
        raise TypeError(f"{where}: rota.chain takes calls as separate arguments: use rota.chain(*calls)")
    _check_call(call, where)


def _check_call(call: Any, where: str) -> None:
    if not isinstance(call, Call):
        raise TypeError(f"{where}: {why_no_call(call)}")


# Messages about mistakes of callers


def fault_in_call_options(given: Iterable[str], owner: str) -> str:
    """Return the error message for one of the `given` keyword arguments, one that is not an option of a call. `owner`
    names the function that was called, for example `enqueue()`."""
    declared = dict.fromkeys(TaskArguments.__annotations__, "set it where the task is declared, in @rota.task(...)")
    return fault_in_option(
        min(set(given) - CALL_OPTIONS), owner, declared | FOREIGN_NAMES["call"], CallOptions.__annotations__
    )


def advice_on_options(name: str, names: Collection[str]) -> str:
    """Return advice for the error message about keyword arguments (`names`) that the function of the task `name` does
    not take. Returns "" unless some of them are options of a call, in Rota or in another library."""
    meant = next((each for each in sorted(names) if each in CALL_OPTIONS or each in FOREIGN_NAMES["call"]), "")
    if not meant:
        return ""
    option = f"{meant}=" if meant in CALL_OPTIONS else ""
    elsewhere = "" if option else f": {FOREIGN_NAMES['call'][meant]}"
    return f"; pass the options of a call separately: {name}.using({option}...).enqueue(...){elsewhere}"


def why_no_call(thing: Any) -> str:
    """Return the error message for an object that someone tried to enqueue but that is not a Call."""
    name = getattr(thing, "__name__", "resize")
    if isinstance(thing, str):
        return f'a name alone is not a call, got {thing!r}: use rota.Call({thing!r}, args=[7], queue="images")'
    if hasattr(thing, "call"):
        return f"{name} is a task, not a call: use {name}.call(...), or enqueue the task with {name}.enqueue(...)"
    if hasattr(thing, "duplicate"):
        return f"this task is already enqueued: {thing!r}; create a call with resize.call(...)"
    if thing is None:
        return "None is not a call: resize(7) calls the function at once, but resize.call(7) creates a call to enqueue"
    if callable(thing):
        task = task_of_method(thing)
        advice = f"the function {name} is not a task: declare it with @rota.task, and use {name}.call(...)"
        return f"use {task}.call(...), not {task}.{name}" if task else advice
    what = "this takes only calls, for example resize.call(7) or rota.Call(...)"
    return f"{what}, got {thing!r}; enqueue each chain or group with its own .enqueue()"


def task_of_method(thing: Any) -> str:
    """Return the name of the task if the object is a method of a task (for example `resize.enqueue`), or "" for
    anything else."""
    owner = getattr(thing, "__self__", None)
    return getattr(owner, "__name__", "resize") if hasattr(owner, "call") else ""


def why_not_positional(what: Any, more: Sequence[Any]) -> str:
    """Return the error message for a call of `enqueue` with positional arguments after the object to enqueue."""
    shown = ", ".join(map(repr, more))
    if isinstance(what, str):
        return f"pass the task's arguments as a list: use .enqueue({what!r}, args=[{shown}])"
    name = getattr(what, "__name__", "resize")
    return f"enqueue() takes one call: use .enqueue({name}.call({shown})), or {name}.enqueue({shown})"
