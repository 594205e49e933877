"""What the shop's own workers did, as tasks. Each appends a line to done.jsonl, in the folder of the fleet."""

import json
import os
from pathlib import Path
from typing import Any

import rota


def _done(what: str, *about: Any) -> None:
    """Append one line in a single write, as several workers do so at once."""
    task = rota.current_task()
    line = {"what": what, "about": about, "queue": task.queue, "lag_seconds": round(task.lag_seconds, 6)}
    file = os.open(Path("done.jsonl"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, json.dumps(line).encode() + b"\n")
    finally:
        os.close(file)


@rota.task(queue="email")
def send_sold_email(mail: dict[str, Any]) -> None:
    """Tell a seller: the one argument is the object as the shop pushed it."""
    _done("mail", mail["seller"], mail["item"])


@rota.task(queue="low")
def count_sale(order: int) -> None:
    """One of the callbacks, known by its name."""
    _done("count", order)


@rota.task(queue="low")
def ask_for_feedback(buyer: int, order: int) -> None:
    """A call that the shop scheduled."""
    _done("feedback", buyer, order)
