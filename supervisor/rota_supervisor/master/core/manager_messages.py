"""What messages to a service manager are made of: for who decides about them, and for who sends them, loaded first."""

from typing import Final

from rota.printable import printable

MONOTONIC_US: Final = "{monotonic_us}"  # filled in by whoever sends the message


def status_message(text: str) -> str:
    """A line for people."""
    return f"STATUS={printable(' '.join(text.split()))}"
