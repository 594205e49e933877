"""The steps of the demo: steady streams of tasks, two floods, a kill and two resizes. The demo then waits until all
tasks are done."""

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final, NamedTuple

import rota
from rota.durations import seconds as in_seconds
from rota_supervisor.demo import proof
from rota_supervisor.demo.proof import Accepted, Check, Run
from rota_supervisor.exits import ExitCode, Failure
from rota_supervisor.node_http import NodeUnreachable, node_at
from rota_supervisor.testing import FleetOfTest
from rota_supervisor.top import fleet_view

NAMESPACE: Final = "demo"
ACT_SECONDS: Final = 20.0  # time limit of each step, which takes less than a second on a machine with free processors
_TICK_SECONDS: Final = 0.05
_POLL_SECONDS: Final = 0.2
_REPORT_SECONDS: Final = 2.0
_DRAIN_SECONDS: Final = 60.0
_IDLE_SECONDS: Final = 5.0  # if the fleet has been idle for this long, tasks that have not run yet are lost
_LAST_LINES: Final = 3
_SHORTEST_DELAY_SECONDS: Final = 0.3
_DELAY_SHARE: Final = 0.12  # the longest delay, as a share of the demo's duration
_FLOOD_PER_SECOND: Final = 30  # the number of tasks in a flood, per second of the demo


SETTINGS: Final[Mapping[str, Any]] = {
    "namespace": NAMESPACE,
    "imports": ["rota_supervisor.demo.mail_tasks"],
    "workers": 4,
    "tiers": [["password-reset"], ["sold-email", "expired-email"], ["default", "reports"]],
    "queues": {"password-reset": {"lag_objective_seconds": 1}, "sold-email": {"weight": 3}},
    "log": {"format": "json"},
}


def ended_by_itself(fleet: FleetOfTest) -> Failure:
    """Return an error for a fleet that has ended unexpectedly. The error includes the last lines of the fleet's log."""
    log_end = "\n".join(fleet.log.splitlines()[-_LAST_LINES:])
    return Failure(ExitCode.NO, f"the fleet ended unexpectedly with exit code {fleet.exit_code}: {log_end}")


class Stream(NamedTuple):
    """A task that the demo enqueues at a steady rate. `is_delayed`: whether each call is enqueued with a delay."""

    task: str
    queue: str
    per_second: float
    is_delayed: bool


STREAMS: Final = (
    Stream("send_password_reset", "password-reset", 6, is_delayed=False),
    Stream("send_password_reset", "password-reset", 2, is_delayed=True),
    Stream("send_sold_email", "sold-email", 25, is_delayed=False),
    Stream("send_expired_email", "expired-email", 10, is_delayed=True),
    Stream("ask_for_feedback", "default", 8, is_delayed=True),
    Stream("build_report", "reports", 3, is_delayed=False),
)


class Demo:
    """One run of the demo, with a fleet that is ready. `report` is called with a text for each event. `watch` is called
    repeatedly, and raises an exception if the user wants to quit."""

    def __init__(
        self,
        fleet: FleetOfTest,
        settings: Mapping[str, Any],
        seconds: float,
        report: Callable[[str], None],
        watch: Callable[[], None],
    ) -> None:
        self._fleet = fleet
        self._settings = settings
        self._seconds = seconds
        self._report = report
        self._watch = watch
        self._http = node_at(settings["http"]["listen"])
        self._random = Random(17)  # noqa: S311 - delays, the same in each demo
        self.accepted: dict[str, Accepted] = {}
        self.status: Mapping[str, Any] = {}  # the latest reply of /status.json
        self._killed: list[str] = []
        self._acts: list[Check] = []
        self._produced_seconds = self._polled_at = self._reported_at = 0.0
        self._started_at = time.monotonic()

    def run(self) -> list[Check]:
        """Run all steps of the demo: enqueue tasks, kill a worker and resize the pool in between, and wait until all
        tasks are done. Returns the checks that prove that no task was lost. Raises Failure and RotaError."""
        self._wait(lambda: bool(self.status), ACT_SECONDS)
        for share, act in (
            (0.1, self._flood),
            (0.28, self._kill_in_mid_task),
            (0.48, lambda: self._resize(4, 6)),
            (0.58, self._flood),
            (0.78, lambda: self._resize(6, 3)),
            (0.9, self._drain),
        ):
            self._produce_until(lambda at=share: self._elapsed > at * self._seconds, self._seconds)  # type: ignore[misc]  # of this turn
            act()
        return [*proof.prove(self.accepted, self._runs(), self._killed, self.status), *self._acts]

    # The acts

    def _flood(self) -> None:
        count = int(_FLOOD_PER_SECOND * self._seconds)
        tasks = (
            ("send_sold_email", "sold-email"),
            ("send_sold_email", "sold-email"),
            ("send_expired_email", "expired-email"),
        )
        self._enqueue([rota.Call(tasks[at % 3][0], (at,), queue=tasks[at % 3][1]) for at in range(count)])
        self._report(f"{count:,} mails about sold and expired listings at once; password resets still run first")

    def _kill_in_mid_task(self) -> None:
        self._killed = self._enqueue([rota.Call("build_yearly_report", queue="reports")])
        [task_id] = self._killed
        is_met = self._produce_until(lambda: bool(self._runs(task_id)), ACT_SECONDS)
        if not is_met:
            return self._found("killed in mid-task", ok=False, seen="no worker has started the task yet")
        pid = self._runs(task_id)[0].pid
        killed_at = time.time()
        os.kill(pid, signal.SIGKILL)
        self._report(f"kill -9 {pid}: a worker, in the middle of build_yearly_report")
        if not self._produce_until(lambda: len(self._runs(task_id)) > 1, ACT_SECONDS):
            return self._found("killed in mid-task", ok=False, seen="its task was not started again")
        again = self._runs(task_id)[1]
        seen = f"its task started again {1000 * (again.at - killed_at):.0f} ms later, in worker {again.pid}"
        return self._found("killed in mid-task", ok=True, seen=seen)

    def _resize(self, before: int, after: int) -> None:
        self._fleet.reload({**self._settings, "workers": after})
        self._report(f"edited rota.toml: workers = {after}, and kill -HUP")
        reloaded_at = time.monotonic()

        def running() -> list[int]:
            return [
                count for pool in self.status["pools"] for count in (pool["workers"].get("running", 0), pool["desired"])
            ]

        ok = self._produce_until(lambda: running() == [after, after], ACT_SECONDS)
        seen = f"{running()[0]} workers run {time.monotonic() - reloaded_at:.1f} s after the signal"
        self._found(f"resized {before} -> {after}", ok=ok, seen=seen)

    def _drain(self) -> None:
        count = len(self.accepted)
        self._report(f"producing ended with {count:,} tasks accepted; the fleet processes the rest")
        idle_since = time.monotonic()

        def has_ended() -> bool:
            nonlocal idle_since
            states = [row["state"] for row in self.status["queues"]]
            if not all(state and state["ready"] == state["scheduled"] == state["inflight"] == 0 for state in states):
                idle_since = time.monotonic()
                return False
            return proof.totals(self.status) == (count, count) or time.monotonic() - idle_since > _IDLE_SECONDS

        self._wait(has_ended, _DRAIN_SECONDS)

    def _found(self, name: str, *, ok: bool, seen: str) -> None:
        self._acts.append(Check(name, ok, seen))
        self._report(seen)

    # Waiting and enqueueing, during the steps and between them

    def _produce_until(self, condition: Callable[[], bool], seconds: float) -> bool:
        def has_ended() -> bool:
            self._produce()
            return condition()

        return self._wait(has_ended, seconds)

    def _wait(self, until: Callable[[], bool], seconds: float) -> bool:
        """Wait until the condition holds. Return False if it does not hold within `seconds`."""
        deadline = time.monotonic() + seconds
        while not until():
            if time.monotonic() > deadline:
                return False
            self._watch()
            self._poll()
            time.sleep(_TICK_SECONDS)
        return True

    def _poll(self) -> None:
        if self._fleet.exit_code is not None:
            raise ended_by_itself(self._fleet)
        now = time.monotonic()
        if now - self._polled_at > _POLL_SECONDS:
            self._polled_at = now
            with contextlib.suppress(NodeUnreachable, ValueError):  # for example, the exporter is being replaced
                self.status = json.loads(self._http.get("/status.json").text)
        if self.status and now - self._reported_at > _REPORT_SECONDS:
            self._reported_at = now
            self._report("".join(cell.text for cell in fleet_view.title(self.status)))

    def _produce(self) -> None:
        since = self._produced_seconds
        self._produced_seconds = self._elapsed
        longest = max(2 * _SHORTEST_DELAY_SECONDS, _DELAY_SHARE * self._seconds)
        calls = []
        for task, queue, per_second, is_delayed in STREAMS:
            for number in range(int(per_second * since), int(per_second * self._produced_seconds)):
                delay = self._random.uniform(_SHORTEST_DELAY_SECONDS, longest) if is_delayed else None
                calls.append(rota.Call(task, (number,), queue=queue, delay=delay))
        if calls:
            self._enqueue(calls)

    def _enqueue(self, calls: list[rota.Call[Any]]) -> list[str]:
        """Enqueue the calls, record them as accepted, and return the ids of their tasks."""
        sent_at = time.time()
        ids = [handle.id for handle in self._fleet.client.enqueue_many(calls)]
        due = [sent_at + in_seconds(call.delay or 0, "delay") for call in calls]
        accepted = {each: Accepted(call.name, at) for each, call, at in zip(ids, calls, due, strict=True)}
        with (self._fleet.folder / "accepted.jsonl").open("a") as journal:
            journal.writelines(json.dumps([task_id, *each]) + "\n" for task_id, each in accepted.items())
        self.accepted |= accepted
        return ids

    def _runs(self, task_id: str = "") -> list[Run]:
        """Return the lines that all tasks, or only the given task, have recorded so far."""
        file = self._fleet.folder / proof.RUNS_FILE
        lines = file.read_text().splitlines(keepends=True) if file.exists() else []
        return [Run(*json.loads(line)) for line in lines if task_id in line and line.endswith("\n")]

    def lags(self) -> dict[str, dict[str, float | None]]:
        """Return the lag of each queue over the last few minutes, in seconds."""
        rows = {row["name"]: row["lag"] or {} for row in self.status["queues"]}
        return {name: {each: lag.get(f"{each}_seconds") for each in ("p50", "p99")} for name, lag in rows.items()}

    @property
    def _elapsed(self) -> float:
        return time.monotonic() - self._started_at
