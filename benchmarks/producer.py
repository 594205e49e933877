"""The benchmark's side of a producer, which runs in the contender's own interpreter."""

import json
import select
import subprocess
from collections.abc import Mapping, Sequence
from typing import IO, Any

from benchmarks.testbed import Failed

BOOT_SECONDS = 60.0
REPLY_SECONDS = 300.0
BATCH = 500


class Producer:
    """A process that enqueues for one contender."""

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str], log: IO[bytes]) -> None:
        self.process = subprocess.Popen(
            argv, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        )

    def wait_until_ready(self) -> None:
        """Wait until the producer has started. Raises Failed if it does not start in time."""
        if self._line(BOOT_SECONDS) != "ready":
            raise Failed("the producer did not start")

    def _line(self, seconds: float) -> str:
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], seconds)[0]:
            raise Failed(f"the producer sent no reply for {seconds:g} s")
        return self.process.stdout.readline().strip()

    def _request(self, **request: Any) -> float:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        reply = self._line(REPLY_SECONDS)
        if not reply:
            raise Failed(f"the producer ended during {request['verb']}")
        return float(json.loads(reply))

    def each(self, task: str, count: int) -> float:
        """Enqueue tasks with one call each, and return the duration in seconds."""
        return self._request(verb="each", task=task, count=count)

    def many(self, task: str, count: int) -> float:
        """Enqueue tasks, 500 per call if the contender has a bulk call, and return the duration in seconds."""
        return self._request(verb="many", task=task, count=count, batch=BATCH)

    def later(self, task: str, dues: list[float]) -> float:
        """Enqueue a task for each of these Unix times, and return the duration in seconds."""
        return self._request(verb="later", task=task, dues=dues)

    def pile(self, task: str, count: int, due: float, seconds: float = 0.0) -> float:
        """Enqueue many tasks, 500 per call, and return the duration in seconds. The due times are evenly spread over
        `seconds`, starting at `due`.
        """
        return self._request(verb="pile", task=task, count=count, batch=BATCH, due=due, seconds=seconds)

    def singly(self, task: str, count: int) -> float:
        """Enqueue single tasks with pauses of about 20 ms, and return the duration in seconds."""
        return self._request(verb="singly", task=task, count=count)

    def steadily(self, task: str, count: int, rate: float) -> float:
        """Enqueue single tasks at this rate per second, if possible, and return the duration in seconds."""
        return self._request(verb="steadily", task=task, count=count, rate=rate)

    def press(self, task: str, batches: int) -> float:
        """Enqueue batches of 500 tasks as fast as the fleet runs them, and return the duration in seconds."""
        return self._request(verb="press", task=task, count=batches * BATCH, batch=BATCH)

    def come(self, task: str, rate: float, seconds: float) -> int:
        """Enqueue tasks that arrive randomly at this rate for this time, and return their number."""
        return round(self._request(verb="come", task=task, rate=rate, seconds=seconds, batch=BATCH))

    def stop(self) -> None:
        """Stop the process."""
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()
