"""The calls that a test collected, and what it may expect of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypedDict

from rota.child.child_settings import TaskOverride
from rota.client.preparation import prepare
from rota.durations import MICROSECONDS, Duration, seconds, utc_datetime
from rota.protocol.body import decode_body
from rota.protocol.entry import Kind
from rota.protocol.new_tasks import FRONT, NewTask
from rota.tasks.call import Call
from rota.tasks.fleet_settings import DEFAULT_TIME_LIMIT_SECONDS
from rota.tasks.options import TaskOptions
from rota.tasks.registry import default_registry
from rota.worker.preparation import Preparer, Runnable

if TYPE_CHECKING:
    from rota.client.task import Task


@dataclass(frozen=True, slots=True)
class DefaultTerms:
    """As `rota.worker.preparation.TaskTerms`."""

    max_payload_kb: int = 0
    time_limit_seconds: float = DEFAULT_TIME_LIMIT_SECONDS
    overrides: Mapping[str, TaskOverride] = field(default_factory=dict)


IN_TESTS: Final = DefaultTerms()


_ANY_QUEUE: Final = "any"  # of a call that is only compared
_ANY_SIZE_KB: Final = 1 << 30
_ARGUMENTS: Final = ("args", "kwargs")
_ARGUMENTS_NAMED: Final = "arguments"
_DURATIONS: Final = ("delay", "unique_for", "expires", "result_ttl")
_MOST_SHOWN: Final = 20
_MILLISECONDS: Final = 1000


class Expected(TypedDict, total=False):
    """What a call is to be like; what is not given may be anything. Of `args` and `kwargs` the one that is not given is
    empty, when the other is given."""

    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    queue: str
    delay: Duration
    at: datetime
    id: str
    unique: bool
    unique_for: Duration | None
    retries: int
    expires: Duration | None
    result_ttl: Duration
    front: bool
    kind: str


@dataclass(frozen=True, slots=True)
class CapturedCall:
    """One accepted call. `args` and `kwargs` as they stand in its body, after JSON.

    `delay`: for how many seconds it was put off, 0 for none; `at`: the time it was put off to, None without one.
    `unique`: whether it holds a unique key, for `unique_for` seconds (None: for the life of the task). `retries`,
    `expires` and `result_ttl` are those in force: of the call, else as declared. `kind`: immediate, delayed or
    periodic.
    """

    task: str
    args: list[Any]
    kwargs: dict[str, Any]
    queue: str
    id: str
    delay: float = 0.0
    at: datetime | None = None
    unique: bool = False
    unique_for: float | None = None
    retries: int = 0
    expires: float | None = None
    result_ttl: float = 0.0
    front: bool = False
    kind: str = Kind.IMMEDIATE.label
    namespace: str = ""
    bound: tuple[tuple[Any, ...], dict[str, Any]] = field(default=((), {}), repr=False, compare=False)

    def __str__(self) -> str:
        args, kwargs = self.bound  # as they are compared
        words = [*map(repr, args), *(f"{name}={value!r}" for name, value in kwargs.items())]
        return f"{self.task}({', '.join(words)}){self._options()}"

    def _options(self) -> str:
        put_off = f" at={self.at.isoformat()}" if self.at else f" delay={self.delay:g}" if self.delay else ""
        more = "".join(f" {name}" for name in ("unique", "front") if getattr(self, name))
        kind = f" ({self.kind})" if self.kind == Kind.PERIODIC.label else ""
        return f" queue={self.queue}{put_off}{more}{kind}"


class Reading(NamedTuple):
    """A body as a worker reads it: the arguments as the function takes them, so that f(1) and f(x=1) are the same, and
    the options in force."""

    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    options: TaskOptions


def read(body: bytes) -> Reading:
    """What a worker makes of a body; of one that it could not call, what stands there."""
    ready = Preparer(default_registry, IN_TESTS).prepare(body)
    if isinstance(ready, Runnable):
        return Reading(ready.args, ready.kwargs, ready.terms.options)
    raw = decode_body(body)
    return Reading(raw.args, raw.kwargs, TaskOptions())


def captured_call(namespace: str, new: NewTask, kind: Kind) -> CapturedCall:
    """What was sent, for the test."""
    body, reading = decode_body(new.body), read(new.body)
    due, options = new.due.removesuffix(FRONT), reading.options
    return CapturedCall(
        body.name,
        body.args,
        body.kwargs,
        new.queue,
        new.id,
        delay=int(due[1:]) / MICROSECONDS if due[:1] == "+" else 0.0,
        at=utc_datetime(int(due[1:])) if due[:1] == "@" else None,
        unique=bool(new.unique_key),
        unique_for=new.hold_ms / _MILLISECONDS or None,
        retries=options.retries,
        expires=options.expires,
        result_ttl=options.result_ttl,
        front=new.due.endswith(FRONT),
        kind=kind.label,
        namespace=namespace,
        bound=(tuple(reading.args), dict(reading.kwargs)),
    )


class WantedCalls:
    """The calls of one task that a test looks for. Raises InvalidArguments for arguments that no call of it could have,
    and TypeError for an expectation that is none."""

    def __init__(self, task: "Task[..., Any] | str", expected: Expected) -> None:
        if unknown := set(expected).difference(Expected.__annotations__):
            raise TypeError(f"a call has no {min(unknown)!r}: expect some of {', '.join(Expected.__annotations__)}")
        self.name = task if isinstance(task, str) else task.name
        self._values = {name: _comparable(name, value) for name, value in expected.items() if name not in _ARGUMENTS}
        if "args" in expected or "kwargs" in expected:
            self._values["bound"] = _bound(self.name, expected.get("args", ()), expected.get("kwargs", {}))
        self._said = ", ".join(f"{name}={value!r}" for name, value in expected.items())

    def __str__(self) -> str:
        return f"{self.name} with {self._said}" if self._said else self.name

    def differences(self, call: CapturedCall) -> list[str]:
        """In what a call of the task is another one."""
        if call.task != self.name:
            return ["task"]
        found = [name for name, value in self._values.items() if _comparable(name, getattr(call, name)) != value]
        return [_ARGUMENTS_NAMED if name == "bound" else name for name in found]


def _comparable(name: str, value: Any) -> Any:
    return seconds(value, name) if name in _DURATIONS and value is not None else value


def _bound(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    # By the way of a real call, so that what JSON changes is changed here too.
    queue = None if name in default_registry else _ANY_QUEUE
    reading = read(prepare(Call(name, args, kwargs, queue=queue), default_registry, _ANY_SIZE_KB).body)
    return tuple(reading.args), dict(reading.kwargs)


def said_of(calls: Sequence[CapturedCall], wanted: WantedCalls) -> str:
    """What was enqueued instead, those of the task first, each with what differs."""
    if not calls:
        return "nothing was enqueued"
    lines = sorted((_line(call, wanted.differences(call)) for call in calls), key=lambda line: line[0])
    shown = [text for _, text in lines[:_MOST_SHOWN]]
    more = [f"  and {len(lines) - _MOST_SHOWN} more"] if len(lines) > _MOST_SHOWN else []
    return "\n".join(["enqueued were:", *shown, *more])


def _line(call: CapturedCall, differences: list[str]) -> tuple[bool, str]:
    is_other = differences == ["task"]
    why = "" if is_other or not differences else f"  <- other {', '.join(differences)}"
    return is_other, f"  {call}{why}"
