"""Tasks that do the work of the shop's former workers. Each appends a line to done.jsonl in the folder of the fleet."""

import json
import os
from pathlib import Path
from typing import Any

import rota


def _done(what: str, *about: Any) -> None:
    """Append one line with a single write, because several workers may write at the same time."""
    task = rota.current_task()
    line = {"what": what, "about": about, "queue": task.queue, "lag_seconds": round(task.lag_seconds, 6)}
    file = os.open(Path("done.jsonl"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, json.dumps(line).encode() + b"\n")
    finally:
        os.close(file)


@rota.task(queue="email")
def send_sold_email(mail: dict[str, Any]) -> None:
    """Send a mail to a seller. The argument is the JSON object that the shop pushed."""
    _done("mail", mail["seller"], mail["item"])


@rota.task(queue="low")
def count_sale(order: int) -> None:
    """Count a sale. The shop's items refer to this task by its name."""
    _done("count", order)


@rota.task(queue="low")
def ask_for_feedback(buyer: int, order: int) -> None:
    """Send a request for feedback. The shop schedules this call."""
    _done("feedback", buyer, order)
