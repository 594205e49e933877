"""The client for asyncio. It shares all code that does no I/O with the blocking client, but has its own connections."""

from rota.client.aio.client import AsyncClient
from rota.client.aio.event_stream import AsyncTaskEvents
from rota.client.aio.handles import AsyncHandle

__all__ = ["AsyncClient", "AsyncHandle", "AsyncTaskEvents"]
