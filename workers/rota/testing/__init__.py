"""To test an application without a server: `capture` collects what it enqueues, `eager` runs it at once.

Both stand in for the server for all clients of this process, in all threads, behind every check that a call goes
through. With a server and workers: the fixtures `rota_client` and `rota_fleet` of the pytest plugin.
"""

from rota.testing.captures import Capture, CaptureClock, CapturedCall, EndlessDrain, capture
from rota.testing.inline_runs import Ran, eager
from rota.testing.stand_in import NotAnswered, NotRun

__all__ = [
    "Capture",
    "CaptureClock",
    "CapturedCall",
    "EndlessDrain",
    "NotAnswered",
    "NotRun",
    "Ran",
    "capture",
    "eager",
]
