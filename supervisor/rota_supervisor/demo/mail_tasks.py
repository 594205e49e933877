"""The tasks of the demo. They imitate those of a mail service, but only sleep.

Each attempt is recorded in a journal file. The environment variable DEMO_FOLDER contains the folder of this file. Each
line is written by a single call of write() to a file that is opened for appending. Therefore several processes can
share the file, and the lines of a killed process are kept.
"""

import json
import os
import time
from collections.abc import Generator
from pathlib import Path

import rota
from rota_supervisor.demo.proof import FOLDER_VARIABLE, RUNS_FILE, Run


class MailServerBusy(Exception):
    """The error of a mail server that is too busy now. The client should send the mail again later."""


@rota.around_task
def journaled(task: rota.CurrentTask) -> Generator[None, None, None]:
    """Record the start and the outcome of an attempt."""
    _note("start", task)
    try:
        yield
    except BaseException:
        _note("failed", task)
        raise
    _note("done", task)


def _folder() -> Path:
    return Path(os.environ[FOLDER_VARIABLE])


def _note(what: str, task: rota.CurrentTask) -> None:
    run = Run(what, task.id, task.name, os.getpid(), time.time(), task.due_at.timestamp())
    with (_folder() / RUNS_FILE).open("ab", buffering=0) as journal:
        journal.write(json.dumps(run).encode() + b"\n")


@rota.task(queue="password-reset", retries=3)
def send_password_reset(user_id: int) -> None:
    """Send an email that a person is waiting for."""
    _send(0.002, user_id)


@rota.task(queue="sold-email")
def send_sold_email(item_id: int) -> None:
    """Inform a seller that the item was sold."""
    _send(0.004, item_id)


@rota.task(queue="expired-email", base=0.2, max_delay=1)
def send_expired_email(item_id: int) -> None:
    """Inform a seller that the listing has expired. For every tenth item, the mail server rejects the first attempt."""
    if item_id % 10 == 0 and rota.current_task().attempt == 1:
        raise MailServerBusy("450 try again later")
    _send(0.004, item_id)


@rota.task
def ask_for_feedback(item_id: int) -> None:
    """Ask a buyer for feedback, some time after the sale."""
    _send(0.003, item_id)


@rota.task(queue="reports")
def build_report(number: int) -> None:
    """Build a report."""
    _send(0.008, number)


@rota.task(queue="reports")
def build_yearly_report() -> None:
    """In the first attempt, create a marker file and sleep for a minute. The demo kills the worker during that time.
    The second attempt finds the marker and returns at once."""
    try:
        (_folder() / "yearly").touch(exist_ok=False)
    except FileExistsError:
        return
    _send(60)


def _send(seconds: float, *_content: object) -> None:
    time.sleep(seconds)
