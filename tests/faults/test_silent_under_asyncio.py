"""The application of examples/fastapi while its Redis does not reply. The event loop of the application keeps running,
and requests to it fail within the timeout.
"""

import asyncio
import gc
import importlib
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import httpx2
import pytest
from fastapi import FastAPI

import rota
from rota.client import default_clients
from support.faulty_link import FaultyLink

EXAMPLE = Path(__file__).parents[2] / "examples/fastapi"
TIMEOUT_SECONDS = 2.0
REQUESTS = 20
# This is the processor time of the thread, because other processes may run in the meantime on a busy machine.
LONGEST_PAUSE_SECONDS = 0.05
BLOCKED_SECONDS = 0.4 * TIMEOUT_SECONDS  # a call that has to wait for its first reply fails after half of the timeout


class Turn(NamedTuple):
    """The time that an event loop took to come back to a task that is always ready to run."""

    seconds: float
    worked: float


async def longest_turn(over: asyncio.Event) -> Turn:
    longest = Turn(0.0, 0.0)
    before = (time.monotonic(), time.thread_time())
    while not over.is_set():
        await asyncio.sleep(0.001)
        now = time.monotonic(), time.thread_time()
        longest = Turn(max(longest.seconds, now[0] - before[0]), max(longest.worked, now[1] - before[1]))
        before = now
    return longest


@asynccontextmanager
async def watched() -> AsyncIterator["asyncio.Task[Turn]"]:
    """Measure the event loop during the block. After the block, the yielded task returns the loop's longest turn."""
    over = asyncio.Event()
    watching = asyncio.create_task(longest_turn(over))
    await asyncio.sleep(0)  # lets the task begin to measure
    yield watching
    over.set()
    await watching


@pytest.fixture(name="invoices")
def _invoices(link: FaultyLink, namespace: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Yield the example application with a default client that uses the link. Objects of earlier tests are
    garbage-collected first, so that a later collection does not cause a long turn.
    """
    monkeypatch.syspath_prepend(EXAMPLE)
    monkeypatch.setattr(default_clients, "_default", default_clients.DefaultClient())
    rota.configure(redis_url=link.url, namespace=namespace, timeout_seconds=TIMEOUT_SECONDS)
    application = importlib.import_module("invoices")
    gc.collect()
    gc.freeze()
    yield application
    gc.unfreeze()


@asynccontextmanager
async def browsing(app: FastAPI) -> AsyncIterator[httpx2.AsyncClient]:
    """Yield an HTTP client whose requests the application serves in this event loop. The application has already served
    one request.
    """
    transport = httpx2.ASGITransport(app=app, raise_app_exceptions=False)
    async with (
        app.router.lifespan_context(app),
        httpx2.AsyncClient(transport=transport, base_url="http://shop", timeout=60) as browser,
    ):
        assert (await browser.get("/nowhere")).status_code == 404
        yield browser


@pytest.mark.parametrize("is_connected", [False, True], ids=["Unavailable", "Uncertain"])
def test_silent_server_never_blocks_the_event_loop(is_connected: bool, link: FaultyLink, invoices: ModuleType) -> None:
    async def program() -> None:
        async with browsing(invoices.app) as browser:
            if is_connected:
                assert (await browser.post("/invoices/1")).status_code == 202
            link.silence(requests=True, replies=True)
            began = time.monotonic()
            async with watched() as watching:
                requests = [browser.post(f"/invoices/{number}") for number in range(REQUESTS)]
                *found, status = await asyncio.gather(*requests, browser.get("/tasks/a"))
            assert time.monotonic() - began < 2 * TIMEOUT_SECONDS
            assert {each.status_code for each in found} == {503}
            assert (status.status_code, status.json()["state"]) == (200, "unknown")
            assert watching.result().worked < LONGEST_PAUSE_SECONDS
            assert watching.result().seconds < BLOCKED_SECONDS

    asyncio.run(program())


@pytest.mark.filterwarnings("ignore::rota.BlockingCall")
def test_the_test_notices_if_a_client_call_blocks_the_event_loop(link: FaultyLink, invoices: ModuleType) -> None:
    held_up = FastAPI()

    @held_up.post("/invoices/{order_id}")
    async def request_invoice(order_id: int) -> None:
        invoices.make_invoice.enqueue(order_id)

    async def program() -> None:
        async with browsing(held_up) as browser:
            link.silence(requests=True, replies=True)
            async with watched() as watching:
                assert (await browser.post("/invoices/1")).status_code == 500
            assert watching.result().seconds > BLOCKED_SECONDS

    asyncio.run(program())
