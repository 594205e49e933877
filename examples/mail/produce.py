"""Give the mail service something to do: python produce.py [--sold N].

The first half enqueues like an application that imports the tasks. The second half uses plain Redis commands and the
format of the classic delayed queue, like a program in another language.
"""

import argparse
import json
import os
import time
import tomllib
import uuid
from pathlib import Path

import redis

from tasks import send_expired_email, send_feedback_request, send_password_reset, send_sold_email

FEEDBACK_DELAY_SECONDS = 2


def produce_with_rota(sold: int) -> int:
    """Enqueue through the task functions, and return the number of tasks. The client reads its server from
    ./rota.toml."""
    for item in range(sold):
        send_sold_email.enqueue(17, item, 900 + item, 3)
        send_feedback_request.enqueue_in(FEEDBACK_DELAY_SECONDS, 3, item)
    send_expired_email.enqueue(17, 1001)
    handle = send_password_reset.enqueue(3, "correct-horse")
    print(f"the password reset is task {handle.id}")
    return 2 * sold + 2


def produce_with_plain_redis() -> int:
    """Enqueue a task that is due now with RPUSH, and a task that is due later with ZADD. Return the number of tasks."""
    settings = tomllib.loads(Path("rota.toml").read_text())
    prefix = "{" + os.environ.get("ROTA_NAMESPACE", settings["namespace"]) + "}"
    with redis.Redis.from_url(os.environ.get("ROTA_REDIS_URL", settings["redis_url"])) as server:
        now = [str(uuid.uuid4()), "sold-email", "send_sold_email", [21, 2001, 4200, 8]]
        server.rpush(f"{prefix}:queue:sold-email", json.dumps(now))
        later = [str(uuid.uuid4()), "expired-email", "send_expired_email", [21, 2002]]
        server.zadd(f"{prefix}:delayed", {json.dumps(later): time.time() + FEEDBACK_DELAY_SECONDS})
    return 2


def main() -> None:
    """Enqueue in both ways, and print the number of tasks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sold", type=int, default=10, help="how many mails about sold items to enqueue (default 10)")
    count = produce_with_rota(parser.parse_args().sold) + produce_with_plain_redis()
    print(f"enqueued {count} tasks; watch them arrive: tail -f outbox.jsonl")


if __name__ == "__main__":
    main()
