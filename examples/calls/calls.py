"""HTTP calls in numbers, with a library that blocks: each in a thread, all of them in one worker."""

import asyncio
import json
import os
import urllib.request
from pathlib import Path

import rota

ANSWERS = Path(__file__).with_name("answers.jsonl")


def get(url: str) -> int:
    """As any library that blocks. Its own timeout is shorter than the task's soft limit, which could not end it."""
    with urllib.request.urlopen(url, timeout=8) as answer:  # noqa: S310 - the URLs are our own
        return len(answer.read())


@rota.task(queue="calls", retries=8, soft_time_limit=10)
async def call(url: str) -> None:
    """Fetch it, and write down how large it was."""
    size = await asyncio.to_thread(get, url)
    line = json.dumps({"url": url, "bytes": size, "pid": os.getpid(), "attempt": rota.current_task().attempt})
    with ANSWERS.open("a") as answers:
        answers.write(line + "\n")
