"""The model of tasks that have their own rate: which tasks may start, and until when the others are delayed."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from model.items import Serving, Task, slack_us
from model.steering import Steering

IN_HAND_US = 5_000


@dataclass
class Rate:
    """The state of a task rate. Each start costs one interval. `starts` is the time at which all past starts will have
    been paid for. `line` is the time at which the starts of the waiting tasks will have been paid for too. `vain`
    concerns a task that was delayed, has come back, and still may not start: it is delayed at least until this time.
    """

    starts: int = 0
    line: int = 0
    vain: int = 0

    def turn_of(self, now: int, interval_us: int, burst: int, *, is_back: bool) -> int:
        """Return the time at which the task may start. A task that requests a start for the first time has to wait
        behind the tasks that already wait.
        """
        slack = slack_us(interval_us, burst)
        starts = min(self.starts, self.most(now, interval_us, burst))
        return max(now, starts - slack, 0 if is_back else self.line - slack)

    def most(self, now: int, interval_us: int, burst: int) -> int:
        """Return the highest possible value of `starts`. A higher value can only come from a clock that was set
        back.
        """
        return now + interval_us + slack_us(interval_us, burst) + IN_HAND_US

    def grant(self, at: int, interval_us: int, *, is_back: bool) -> None:
        self.starts = max(self.starts, at) + interval_us
        self.line = max(self.line, self.starts) if is_back else max(self.line, at) + interval_us

    def put_off(self, at: int, interval_us: int, burst: int, *, is_back: bool) -> int:
        """Delay a task that may not start before `at`, and return the time at which it comes back."""
        if not is_back:
            self.line = max(self.line, at) + interval_us
            return at
        at = max(at, self.vain)
        self.vain = at + interval_us
        self.line = max(self.line, self.vain + slack_us(interval_us, burst))
        return at


class Throttling(Steering):
    """The call that a worker makes before it starts a task with its own rate."""

    def __init__(self, lease_us: int, run_record: str, servings: Iterable[Serving] = ()) -> None:
        super().__init__(lease_us, run_record, servings)
        self.rates_of_tasks: defaultdict[str, Rate] = defaultdict(Rate)
        self.starts_by_rate: defaultdict[str, list[int]] = defaultdict(list)

    def throttle(
        self, now: int, owner: str, text: str, rate: tuple[str, int, int], latest: int | None
    ) -> tuple[str, int]:
        """Request permission to start a task. `rate` has the name, the interval and the burst of the rate. Return the
        status and a number. For the status `start`, the number is how long the worker must wait before the start. For
        `throttled`, it is the time until which the task is delayed.
        """
        self.places.at(now)
        task = next((held for held in self.places.inflight.get(owner, []) if held.text == text), None)
        if owner not in self.leases.expires or not task or task.is_tombstone or task.cancelled:
            return "gone", 0
        name, interval_us, burst = rate
        known, is_back = self.rates_of_tasks[name], task.kind == "t"
        at = known.turn_of(now, interval_us, burst, is_back=is_back)
        if latest is not None and at > latest:
            return "late", 0
        known.starts = min(known.starts, known.most(now, interval_us, burst))
        if at - now <= IN_HAND_US:
            known.grant(at, interval_us, is_back=is_back)
            self.starts_by_rate[name].append(at)
            return "start", at - now
        until = max(known.put_off(at, interval_us, burst, is_back=is_back), task.ready + 1)
        self._put_off(owner, task, until)
        return "throttled", until

    def clock_went_back(self) -> None:
        """Forget the starts, because times before and after the jump cannot be compared."""
        self.rates.clock_went_back()
        self.starts_by_rate.clear()

    def _put_off(self, owner: str, task: Task, until: int) -> None:
        """Take a task from its owner, because the task may not start yet, and delay it until this time."""
        self.places.let_go(owner, task.text)
        self.places.look_if_any(task.queue)
        task.starts -= 1
        task.kind, task.flag = "t", task.flag.replace("b", "") or "-"
        self.places.schedule(task, until)
        self.places.news.add("throttled", task, owner, due_us=until)
