"""A scheduler with three operations: enqueue an alarm for a time, remove an alarm, and pop a due alarm under a lock.

The classic implementation keeps all alarms in a sorted set, whose scores are times. Its pop operation sets the score of
the alarm to the end of the lock. If the process fails, the alarm therefore fires again in another process. Here, each
alarm is a task. The time of the alarm is the due time of the task, and the lock is a lease.
"""

import os
import subprocess
import sys
from typing import Self

import rota

QUEUE = "alarms"
LOCK_SECONDS = 2


class Scheduler:
    """A scheduler whose alarms fire in the process that pops them, once they are due."""

    def __init__(self, client: rota.Client) -> None:
        self._client = client
        self._consumer = client.consumer(QUEUE, limit=100, lease_seconds=LOCK_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def enqueue(self, what: str, delay: float) -> str:
        """Enqueue an alarm that fires `delay` seconds from now, and return its id."""
        return self._client.enqueue("alarm", args=[what], queue=QUEUE, delay=delay).id

    def remove(self, alarm_id: str) -> bool:
        """Remove an alarm. Return False if the alarm is already firing or has ended."""
        return self._client.cancel(alarm_id) == "cancelled"

    def pop(self) -> rota.LeasedTask:
        """Wait for the next due alarm, and lock this alarm. If this process fails before the alarm is done, the alarm
        fires again.
        """
        return next(self._consumer)


def main() -> None:
    """Enqueue three alarms and remove one of them. The first alarm fires in a process that fails on purpose, so it
    fires again here."""
    url = os.environ.get("ROTA_REDIS_URL", "redis://127.0.0.1:6398/0")
    with rota.Client(url, namespace="alarms") as client, Scheduler(client) as scheduler:
        if "--fail" in sys.argv:
            print(f"{scheduler.pop().args[0]} fires in process {os.getpid()}, which fails", flush=True)
            os._exit(1)
        scheduler.enqueue("tea", delay=0.5)
        coffee = scheduler.enqueue("coffee", delay=0.5)
        scheduler.enqueue("cake", delay=1.5)
        scheduler.remove(coffee)
        subprocess.run([sys.executable, __file__, "--fail"], check=False)  # noqa: S603 - this very program
        for _ in range(2):
            with scheduler.pop() as alarm:
                print(f"{alarm.args[0]} fires (attempt {alarm.attempt}), {alarm.lag_seconds:.1f} s late")


if __name__ == "__main__":
    main()
