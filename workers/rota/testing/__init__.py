"""To test an application without a server: `capture` collects what it enqueues, `eager` runs it at once.

Both stand in for the server for all clients of this process, in all threads, behind every check that a call goes
through. With a server and workers: the fixtures `rota_client` and `rota_fleet` of the pytest plugin.
"""

from rota.testing.calls import CapturedCall
from rota.testing.capturing import Capture, EndlessDrain, capture
from rota.testing.clock import Clock
from rota.testing.eagerly import eager
from rota.testing.inline import Ran
from rota.testing.stand_in import NotAnswered, NotRun

__all__ = ["Capture", "CapturedCall", "Clock", "EndlessDrain", "NotAnswered", "NotRun", "Ran", "capture", "eager"]
