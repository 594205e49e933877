"""Many HTTP calls at once with a library that blocks: each in a thread, all of them in one worker."""

import asyncio
import json
import os
import urllib.request
from pathlib import Path

import rota

RESPONSES = Path(__file__).with_name("responses.jsonl")


def get(url: str) -> int:
    """Return the size of a response. The call blocks, and its timeout is shorter than the task's soft limit, which
    cannot interrupt a thread."""
    with urllib.request.urlopen(url, timeout=8) as response:  # noqa: S310 - the URLs are our own
        return len(response.read())


@rota.task(queue="calls", retries=8, soft_time_limit=10)
async def call(url: str) -> None:
    """Fetch a URL and append the size of the response to responses.jsonl."""
    size = await asyncio.to_thread(get, url)
    line = json.dumps({"url": url, "bytes": size, "pid": os.getpid(), "attempt": rota.current_task().attempt})
    with RESPONSES.open("a") as file:
        file.write(line + "\n")
