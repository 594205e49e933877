"""Invoices in FastAPI: a request enqueues the making of one, and the event loop goes on meanwhile."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

import rota
from invoice_tasks import make_invoice


@asynccontextmanager
async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
    """Close the client of this event loop as the application ends. It connects at its first use."""
    yield
    await rota.default_async_client().aclose()


app = FastAPI(lifespan=lifespan)


@app.post("/invoices/{order_id}", status_code=202)
async def request_invoice(order_id: int) -> dict[str, str]:
    """Have an invoice made. With an id of its own it is asked for again safely, whatever became of the first time."""
    handle = await make_invoice.using(id=f"invoice-{order_id}").aenqueue(order_id)
    return {"task": handle.id}


@app.get("/tasks/{task_id}")
async def progress(task_id: str) -> dict[str, Any]:
    """How far a task is: asked at the server, without waiting for it."""
    status = await rota.default_async_client().status(task_id)
    return {"state": status.state, "error": status.error}


@app.exception_handler(rota.Unavailable)
@app.exception_handler(rota.Uncertain)
async def unavailable(_request: Request, error: Exception) -> JSONResponse:
    """Nothing was enqueued, or it was sent and no answer came: whoever asked may ask again."""
    return JSONResponse({"error": str(error)}, status_code=503)
