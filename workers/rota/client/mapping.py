"""`rota.map`, through the default clients."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Unpack

from rota.client.default import default_async_client, default_client
from rota.client.flow.filling import MapOptions, MapPlan
from rota.tasks.declaration import showing

if TYPE_CHECKING:
    from rota.client.aio.flow.handles import AsyncGroupHandle
    from rota.client.flow.handles import GroupHandle
    from rota.client.task import Task, Using


@showing(MapOptions, MapPlan)
def map(  # noqa: A001 - `rota.map`, as the built-in one
    task: "Task[..., Any] | Using[..., Any]", items: Iterable[Any], **options: Unpack[MapOptions]
) -> "GroupHandle":
    """Enqueue a task for each item, the item its one argument, as a group: a `chunk` at a time (100), and never more
    than `max_waiting` (1,000) that have not ended. Returns when all are there.

    `items` may be an iterator of millions: only a chunk is held. Under the same `id` a map that was cut short goes on
    behind the items that the server has, when it is given the same items again. It waits on while the server is away.
    `then`, `on_dead`: see `rota.group`. `progress` is given how many were accepted, and of how many (None: not known),
    after each chunk; True draws a bar in the terminal.

    Raises TypeError or ValueError for what is none of this; InvalidArguments and the like with the number of the item;
    GroupEnded when it was cancelled meanwhile; else as `Client.enqueue`, with a note that says how to go on.
    """
    return default_client().map(task, items, **options)


@showing(MapOptions, MapPlan)
async def amap(
    task: "Task[..., Any] | Using[..., Any]", items: Iterable[Any], **options: Unpack[MapOptions]
) -> "AsyncGroupHandle":
    """As `map`, in an event loop, which goes on meanwhile."""
    return await default_async_client().map(task, items, **options)
