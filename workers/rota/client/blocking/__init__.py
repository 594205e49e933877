"""The blocking client: its connections and its waiting thread.

The other modules are generated from `rota.client.aio`.
"""
