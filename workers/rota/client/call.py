"""A call to be made: a task's name, its arguments, and how this one is to be enqueued."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypedDict

from rota.durations import Duration
from rota.options import Unique

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    R_co = TypeVar("R_co", covariant=True, default=Any)  # so that rota.Call("resize") needs no annotation; typing has it from 3.13 on
else:
    from typing import TypeVar

    R_co = TypeVar("R_co", covariant=True)


class CallOptions(TypedDict, total=False):
    """How one call is enqueued; what is not given comes from the task's declaration.

    `delay` (seconds or timedelta) or `at` (an aware datetime), not both. `id`: a task of that id that is live
    already stays, and the handle says `duplicate`. `unique`, `unique_for`, `expires`, `retries` and `result_ttl` as
    declared. `front`: to the head of its lane, now or when it is due; of one `enqueue_many` in the order given.
    """

    queue: str | None
    delay: Duration | None
    at: datetime | None
    id: str | None
    unique: Unique | None
    unique_for: Duration | None
    expires: Duration | None
    retries: int | None
    result_ttl: Duration | None
    front: bool


@dataclass(frozen=True)
class Call(Generic[R_co]):
    """One call, by name: what `task.call(...)` returns, or made by hand as `rota.Call("resize", args=[7])`.

    `R_co` is what the task's function returns. The fields after `kwargs` are those of CallOptions.
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


def plain_call(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Call[Any]:
    """`Call(name, args, kwargs)`, in a third of its time: what is not given stays a default of the class."""
    call: Call[Any] = object.__new__(Call)
    call.__dict__.update(name=name, args=args, kwargs=kwargs)
    return call
