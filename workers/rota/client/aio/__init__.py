"""The client for asyncio: the decisions are those of the one that blocks, the connections are its own."""

from rota.client.aio.client import AsyncClient
from rota.client.aio.event_stream import AsyncTaskEvents
from rota.client.aio.handles import AsyncHandle

__all__ = ["AsyncClient", "AsyncHandle", "AsyncTaskEvents"]
