"""Task events: what must be told of each change, in the fields in which it stands in the stream."""

import json
import re
from dataclasses import dataclass, field

from model.items import Task

_RUN = re.compile(r" (\d+) (\d+) \d+ (\S+)")


@dataclass
class News:
    """`told`: what the stream must hold that nobody has compared yet."""

    is_wanted: bool = False
    told: list[dict[str, str]] = field(default_factory=list)

    def tell(self, event: str, task: Task, owner: str = "", name: str = "", begun: int = 0, **more: object) -> None:
        """`begun`: an attempt that no counter of the task counts yet."""
        if not self.is_wanted:
            return
        attempt = task.failures + task.crashes + task.losses + begun
        said = {"event": event, "task_id": task.id, "queue": task.queue, "task": name or name_in(task.told_body)}
        rest = {key: str(value) for key, value in more.items()}
        self.told.append(said | {"attempt": str(attempt), "owner": owner} | rest)

    def tell_end(self, how: str, task: Task, owner: str, run_record: str) -> None:
        """Report an end, with the record of the last run."""
        run = _RUN.match(run_record)
        assert run
        start, run_us, name = run.groups()
        ran = {} if start == "0" else {"run_us": run_us}
        self.tell(how, task, owner.strip("-"), name.strip("-"), int(bool(ran)), **ran)


def name_in(body: str) -> str:
    """The task's name, as an item of the full or the short form has it."""
    try:
        parsed = json.loads(body)
    except ValueError:
        return ""
    match parsed:
        case [str(), str(), str(name), *_] | [str(name), list()]:
            return name if re.fullmatch(r"[\w.:-]+", name) else ""
    return ""


def reason_in(record: str) -> str:
    """Return the reason in a death record or in the record of a crash."""
    return str(json.loads(record).get("reason", ""))
