"""The simplest possible producer with redis-py. It pushes a constant text with RPUSH, either singly or in pipelines."""

import os
from collections.abc import Sequence
from typing import Any

import redis

QUEUE = "raw:queue"
ITEM = b'["2f1d3e88-5c1e-4a8b-9b6a-111111111111","bench","nothing",[12345]]'
client = redis.Redis.from_url(os.environ["BENCH_URL"], socket_timeout=None)


def enqueue(_task: str, *_args: Any) -> None:
    """Enqueue with one RPUSH."""
    client.rpush(QUEUE, ITEM)


def enqueue_many(_task: str, rows: Sequence[Sequence[Any]]) -> None:
    """Enqueue with a pipeline of RPUSHes."""
    with client.pipeline(transaction=False) as pipeline:
        for _ in rows:
            pipeline.rpush(QUEUE, ITEM)
        pipeline.execute()
