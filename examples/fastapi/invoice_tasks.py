"""The tasks. Workers import only this module, so it does not import FastAPI."""

import asyncio

import rota


@rota.task(retries=3, time_limit=60, result_ttl=3600)
async def make_invoice(order_id: int) -> str:
    """Make an invoice and return the name of its file. A real task would call other services here."""
    if order_id < 1:
        raise rota.Dead(f"there is no order {order_id}")
    await asyncio.sleep(0.01)
    return f"invoice-{order_id}.pdf"
