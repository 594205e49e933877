"""The model of task events. It defines the event, with its fields, that each change must add to the stream."""

import json
import re
from dataclasses import dataclass, field

from model.items import Task

_RUN = re.compile(r" (\d+) (\d+) \d+ (\S+)")


@dataclass
class News:
    """The events that the stream must contain. `expected` has the events that have not been compared with the stream
    yet.
    """

    is_wanted: bool = False
    expected: list[dict[str, str]] = field(default_factory=list)

    def add(self, event: str, task: Task, owner: str = "", name: str = "", begun: int = 0, **more: object) -> None:
        """Expect an event about a task. `begun` is 1 if an attempt has begun that is not included in the task's
        counters yet.
        """
        if not self.is_wanted:
            return
        attempt = task.failures + task.crashes + task.losses + begun
        said = {"event": event, "task_id": task.id, "queue": task.queue, "task": name or name_in(task.stored_body)}
        rest = {key: str(value) for key, value in more.items()}
        self.expected.append(said | {"attempt": str(attempt), "owner": owner} | rest)

    def add_end(self, how: str, task: Task, owner: str, run_record: str) -> None:
        """Expect the event that reports the end of a task. The event has the duration from the run record."""
        run = _RUN.match(run_record)
        assert run
        start, run_us, name = run.groups()
        ran = {} if start == "0" else {"run_us": run_us}
        self.add(how, task, owner.strip("-"), name.strip("-"), int(bool(ran)), **ran)


def name_in(body: str) -> str:
    """Return the task's name from a body in the full form (id, queue, name, ...) or the short form (name, arguments),
    or "".
    """
    try:
        parsed = json.loads(body)
    except ValueError:
        return ""
    match parsed:
        case [str(), str(), str(name), *_] | [str(name), list()]:
            return name if re.fullmatch(r"[\w.:-]+", name) else ""
    return ""


def reason_in(record: str) -> str:
    """Return the reason from a death record or a crash record."""
    return str(json.loads(record).get("reason", ""))
