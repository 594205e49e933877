"""The client for asyncio: the decisions are those of the one that blocks, the connections are its own."""

from rota.client.aio.client import AsyncClient
from rota.client.aio.events import AsyncTaskEvents
from rota.client.aio.handle import AsyncHandle

__all__ = ["AsyncClient", "AsyncHandle", "AsyncTaskEvents"]
