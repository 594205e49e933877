"""A simulated exporter. It makes the reads from Redis that each scrape of a real exporter makes."""

import threading
import time

from benchmarks.nodes.settings import SCRAPE_SECONDS
from rota.child.child_settings import ServerSettings
from rota_supervisor.config.loader import Loaded
from rota_supervisor.exporter.queue_watch import QueueWatch
from rota_supervisor.exporter.redis_thread import RedisThread, connector
from rota_supervisor.master.core.process_settings import exporter_settings


class SimulatedExporter:
    """An exporter that Prometheus scrapes every `SCRAPE_SECONDS`. Only the reads from Redis are made."""

    def __init__(self, loaded: Loaded, server: ServerSettings, first_after_seconds: float) -> None:
        self._watch = QueueWatch(exporter_settings(loaded.config), RedisThread(connector(server)))
        self._first_after_seconds = first_after_seconds

    def start(self) -> None:
        """Begin to be scraped, in a thread."""
        threading.Thread(target=self._be_scraped, daemon=True).start()

    def _be_scraped(self) -> None:
        time.sleep(self._first_after_seconds)
        while True:
            if self._watch.read() is None:
                raise RuntimeError("the server did not reply to a scrape")
            time.sleep(SCRAPE_SECONDS)
