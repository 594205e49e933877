"""The client that blocks: its connections, and what waits in threads. The rest is made from `rota.client.aio`."""
