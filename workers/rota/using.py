"""A task with options for one call: `resize.using(queue="bulk", delay=60).enqueue(7)`."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from rota.call import Call, CallOptions
from rota.default import default_client

if TYPE_CHECKING:
    from rota.client import Client
    from rota.handle import Handle
    from rota.tasks import Task

P = ParamSpec("P")
R = TypeVar("R")


class Using(Generic[P, R]):
    """A task and options. The options stand apart from the arguments, so their names never collide."""

    def __init__(self, task: "Task[P, R]", options: CallOptions | None = None, client: "Client | None" = None) -> None:
        self._task = task
        self._options: Mapping[str, Any] = dict(options or {})
        self._client = client

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """A call of the task with these options, for `enqueue_many` and `Client.enqueue`."""
        return Call(self._task.name, args, kwargs, **self._options)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> "Handle[R]":
        """Enqueue the task with these options. Raises as `Task.enqueue`, and ValueError for options at odds."""
        client = default_client() if self._client is None else self._client
        return client.enqueue(self.call(*args, **kwargs))
