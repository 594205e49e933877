"""A web application on asyncio while its Redis is silent: its loop goes on, and its requests fail in time."""

import asyncio
import time

import rota
from faulty_link import FaultyLink
from servers import Server

TIMEOUT_SECONDS = 1.0
REQUESTS = 50
LONGEST_PAUSE_SECONDS = 0.05


async def longest_turn(over: asyncio.Event) -> float:
    """The most that the loop's thread worked between two of this task's turns: a pause that the application makes."""
    longest, before = 0.0, time.thread_time()
    while not over.is_set():
        await asyncio.sleep(0.001)
        longest, before = max(longest, time.thread_time() - before), time.thread_time()
    return longest


async def request(client: rota.AsyncClient) -> type[Exception] | None:
    try:
        await client.enqueue("work", queue="q")
    except rota.RotaError as error:
        return type(error)
    return None


def test_a_silent_server_pauses_no_event_loop_and_requests_fail_in_time(server: Server, namespace: str) -> None:
    async def application(link: FaultyLink) -> None:
        async with rota.AsyncClient(link.url, namespace, timeout_seconds=TIMEOUT_SECONDS) as client:
            link.silence(requests=True, replies=True)
            over = asyncio.Event()
            watching = asyncio.create_task(longest_turn(over))
            began = time.monotonic()
            found = await asyncio.gather(*[request(client) for _ in range(REQUESTS)])
            assert time.monotonic() - began < 2 * TIMEOUT_SECONDS
            over.set()
            assert set(found) == {rota.Unavailable}
            assert await watching < LONGEST_PAUSE_SECONDS
            link.heal()

    with FaultyLink(server.port) as link:
        asyncio.run(application(link))
