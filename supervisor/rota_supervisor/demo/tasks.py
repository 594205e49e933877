"""The tasks of the demo: a mail service that only takes its time. Each attempt is written down in a journal.

The journal is in the folder that the fleet was started in. Nothing here is imported by the demo itself: its
producer names tasks, as an application in another repository would.
"""

import os
import time
from collections.abc import Generator
from pathlib import Path
from typing import Final

import rota
from rota_supervisor.demo.journal import RUNS_FILE, Mark, What, append

BUSY_SHARE: Final = 10  # the mail server refuses the first attempt of every tenth


class MailServerBusy(Exception):
    """What a mail server says that wants to be asked again."""


@rota.around_task
def journaled(task: rota.CurrentTask) -> Generator[None, None, None]:
    """Write down that an attempt starts and how it ends."""
    _note(What.START, task)
    try:
        yield
    except BaseException:
        _note(What.FAILED, task)
        raise
    _note(What.DONE, task)


def _note(what: What, task: rota.CurrentTask) -> None:
    due_at = task.due_at.timestamp()
    append(Path(RUNS_FILE), [Mark(what, task.id, task.name, task.attempt, os.getpid(), time.time(), due_at)])


@rota.task(queue="password-reset", retries=3)
def send_password_reset(user_id: int, token: str) -> None:
    """Somebody waits in front of a screen for this."""
    _send(0.002, user_id, token)


@rota.task(queue="sold-email")
def send_sold_email(seller_id: int, item_id: int, price: int, buyer_id: int) -> None:
    """Tell a seller that an item found its buyer; price in cents."""
    _send(0.004, seller_id, item_id, price, buyer_id)


@rota.task(queue="expired-email", base=0.2, max_delay=1)
def send_expired_email(seller_id: int, item_id: int) -> None:
    """Tell a seller that a listing ran out. The mail server is busy now and then, so some take a second attempt."""
    if item_id % BUSY_SHARE == 0 and rota.current_task().attempt == 1:
        raise MailServerBusy("450 try again later")
    _send(0.004, seller_id, item_id)


@rota.task
def ask_for_feedback(buyer_id: int, item_id: int) -> None:
    """Ask a buyer, some time after the sale, how it went."""
    _send(0.003, buyer_id, item_id)


@rota.task(queue="reports", time_limit=60)
def build_report(name: str, seconds: float) -> None:
    """Take `seconds` over a report."""
    _send(seconds, name)


def _send(seconds: float, *_content: object) -> None:
    time.sleep(seconds)
