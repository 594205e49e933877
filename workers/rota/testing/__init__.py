"""Tools for testing an application without a server: `capture` collects the tasks that the application enqueues, and
`eager` runs them at once.

Both replace the server for all clients in all threads of this process. The client still makes all its checks. To test
with a server and workers, use the fixtures `rota_client` and `rota_fleet` of the pytest plugin.
"""

from rota.testing.captures import Capture, CaptureClock, CapturedCall, EndlessDrain, capture
from rota.testing.inline_runs import Ran, eager
from rota.testing.stand_in import NeedsServer, NotRun

__all__ = [
    "Capture",
    "CaptureClock",
    "CapturedCall",
    "EndlessDrain",
    "NeedsServer",
    "NotRun",
    "Ran",
    "capture",
    "eager",
]
