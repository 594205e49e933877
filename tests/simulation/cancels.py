"""The connection on which a master receives cancellations. The product's class `Orders` uses it over the simulated
network.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from rota.protocol.wire import Arg
from rota.server.aio_connection import AioConnection
from rota.server.connection import LONG_PARK_SECONDS
from rota.server.server_errors import ConnectionLost, ServerError
from simulation.network import Caller, Network, Up
from simulation.server import Server


class OrdersLine(AioConnection):
    """A connection of a master. Its call blocks until there is an order in the list of the master's node."""

    def __init__(self, caller: Caller, network: Network, server: Server) -> None:
        self._caller = caller
        self._network = network
        self._server = server

    async def execute(self, *args: Arg) -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def receive(reply: bytes | ServerError | None) -> None:
            if future.done():
                return
            if isinstance(reply, ServerError):
                future.set_exception(reply)
            else:
                future.set_result(reply)

        if args[0] == "LREM":
            self._network.call(self._caller, lambda _: self._server.take_off(self._caller.location, args[-1]), receive)
        else:
            self._park(receive)
        return await future

    def _park(self, receive: Callable[[bytes | ServerError | None], None]) -> None:
        caller = self._caller
        network = self._network
        server = self._server

        def serve(order: bytes) -> None:
            network.reply(caller, lambda: receive(order))

        def end() -> None:
            waits = server.is_waiting(caller.location, serve)
            receive(None if waits else ConnectionLost("silence", "silent"))

        if network.up is Up.UP and caller.location not in network.cut:
            server.wait_for_order(caller.location, serve)
        network.timeline.after(LONG_PARK_SECONDS, end)
