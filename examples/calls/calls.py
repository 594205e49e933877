"""Many HTTP calls at once with a library that blocks. One worker makes all calls, each in its own thread."""

import asyncio
import json
import os
import urllib.request
from pathlib import Path

import rota

RESPONSES = Path(__file__).with_name("responses.jsonl")


def get(url: str) -> int:
    """Fetch a URL and return the size of the response in bytes. The call blocks its thread, which the task's soft time
    limit cannot interrupt, so the timeout of the request is shorter than that limit."""
    with urllib.request.urlopen(url, timeout=8) as response:  # noqa: S310 - the URLs are our own
        return len(response.read())


@rota.task(queue="calls", retries=8, soft_time_limit=10)
async def call(url: str) -> None:
    """Fetch a URL and append the size of the response to responses.jsonl."""
    size = await asyncio.to_thread(get, url)
    line = json.dumps({"url": url, "bytes": size, "pid": os.getpid(), "attempt": rota.current_task().attempt})
    with RESPONSES.open("a") as file:
        file.write(line + "\n")
