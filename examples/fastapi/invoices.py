"""Invoices with FastAPI. A request enqueues the task that makes the invoice, without blocking the event loop."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

import rota
from invoice_tasks import make_invoice


@asynccontextmanager
async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
    """Close Rota's client for this event loop when the application ends. The client connects at its first use."""
    yield
    await rota.default_async_client().aclose()


app = FastAPI(lifespan=lifespan)


@app.post("/invoices/{order_id}", status_code=202)
async def request_invoice(order_id: int) -> dict[str, str]:
    """Enqueue the task that makes an invoice. The id of the task depends only on the order, so a repeated request does
    not enqueue a second task while the first one is live.
    """
    handle = await make_invoice.using(id=f"invoice-{order_id}").aenqueue(order_id)
    return {"task": handle.id}


@app.get("/tasks/{task_id}")
async def progress(task_id: str) -> dict[str, Any]:
    """Return the state of a task, without waiting for its end."""
    status = await rota.default_async_client().status(task_id)
    return {"state": status.state, "error": status.error}


@app.exception_handler(rota.Unavailable)
@app.exception_handler(rota.Uncertain)
async def unavailable(_request: Request, error: Exception) -> JSONResponse:
    """Report that Redis was not reachable, so nothing was enqueued, or that its reply did not arrive, so the task may
    have been enqueued. In both cases, the client may repeat the request.
    """
    return JSONResponse({"error": str(error)}, status_code=503)
