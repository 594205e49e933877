"""A shop that pushes to its queues with plain Redis commands: python shop.py [--orders N].

The shop uses Redis and JSON, but not Rota. Its code does not have to change when a fleet adopts its lists.
"""

import argparse
import json
import os
import time
import uuid
from typing import Any

import redis

DELAYED = "delayed:"


def queue_mail(server: "redis.Redis", seller: int, item: int, price: int, buyer: int) -> None:
    """Push a mail as a JSON object, for a worker that does nothing but send mails."""
    mail = {"seller": seller, "item": item, "price": price, "buyer": buyer, "time": time.time()}
    server.rpush("queue:email", json.dumps(mail))


def queue_call(server: "redis.Redis", queue: str, name: str, *args: Any) -> None:
    """Push a call for a worker that finds its functions by name."""
    server.rpush(f"queue:{queue}", json.dumps([name, args]))


def execute_later(server: "redis.Redis", queue: str, name: str, args: list[Any], delay: float = 0.0) -> str:
    """Schedule a call in `delay` seconds and return its id."""
    identifier = str(uuid.uuid4())
    item = json.dumps([identifier, queue, name, args])
    if delay > 0:
        server.zadd(DELAYED, {item: time.time() + delay})
    else:
        server.rpush(f"queue:{queue}", item)
    return identifier


def main() -> None:
    """Sell some items. Each sale queues a mail, a call that is due now, and a call that is due later."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--orders", type=int, default=5, help="how many items to sell (default 5)")
    orders = parser.parse_args().orders
    with redis.Redis.from_url(os.environ.get("ROTA_REDIS_URL", "redis://127.0.0.1:6398/0")) as server:
        for order in range(orders):
            queue_mail(server, 17, order, 900 + order, 3)
            queue_call(server, "low", "count_sale", order)
            execute_later(server, "low", "ask_for_feedback", [3, order], delay=1 + order / 100)
        execute_later(server, "low", "count_sale", [orders])
    print(f"queued {3 * orders + 1} items by hand; watch them arrive: tail -f done.jsonl")


if __name__ == "__main__":
    main()
