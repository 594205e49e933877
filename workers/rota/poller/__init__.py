"""The poller: promotes tasks that are due, and retires owners whose lease ran out."""

from rota.poller.poller_loop import run_poller

__all__ = ["run_poller"]
