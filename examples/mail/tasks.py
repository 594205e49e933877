"""The tasks of the mail service. Instead of sending a mail, a task appends one JSON line to an outbox file, so that you
can watch the mails.

The file is outbox.jsonl in the folder where the fleet was started, unless MAIL_OUTBOX names another file.
"""

import json
import os
import time
from pathlib import Path

import rota


def _send(recipient: str, subject: str) -> None:
    """Append one mail to the outbox with a single write, because several workers may write at the same time."""
    task = rota.current_task()
    mail = {
        "to": recipient,
        "subject": subject,
        "task_id": task.id,
        "attempt": task.attempt,
        "lag_seconds": round(task.lag_seconds, 6),
        "sent_at": time.time(),
        "worker": os.getpid(),
    }
    line = json.dumps(mail).encode() + b"\n"
    outbox = os.open(Path(os.environ.get("MAIL_OUTBOX", "outbox.jsonl")), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(outbox, line)
    finally:
        os.close(outbox)


@rota.task(queue="password-reset", retries=3, time_limit=10)
def send_password_reset(user_id: int, token: str) -> None:
    """Send the link that resets a password. The user is waiting for it."""
    _send(f"user-{user_id}@example.com", f"Reset your password: {token}")


@rota.task(queue="sold-email", retries=5, time_limit=30)
def send_sold_email(seller_id: int, item_id: int, price: int, buyer_id: int) -> None:
    """Inform a seller that an item was sold. The price is in cents."""
    _send(f"user-{seller_id}@example.com", f"Sold: item {item_id} to user {buyer_id} for {price / 100:.2f}")


@rota.task(queue="expired-email", retries=5, time_limit=30)
def send_expired_email(seller_id: int, item_id: int) -> None:
    """Inform a seller that a listing has expired without a sale."""
    _send(f"user-{seller_id}@example.com", f"Expired: item {item_id}")


@rota.task
def send_feedback_request(buyer_id: int, item_id: int) -> None:
    """Send a buyer a request for feedback, some time after the sale."""
    _send(f"user-{buyer_id}@example.com", f"How was item {item_id}?")
