"""Chains, groups and `rota.map` of the asyncio client, which decides nothing of them itself: see `rota.client.flow`."""
