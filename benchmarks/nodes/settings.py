"""The configuration of every node of the benchmark. A real node and a simulated node get the same configuration."""

import json
from typing import Final

from rota_supervisor.config.loader import Loaded, Sources, load_config

NAMESPACE: Final = "bench"
QUEUE: Final = "bench-0"
WORKERS: Final = 16
POLLERS: Final = 2
SCRAPE_SECONDS: Final = 15.0  # the interval at which Prometheus scrapes each exporter


def environment(url: str) -> dict[str, str]:
    """Return the environment variables that configure a node for the server at `url`."""
    return {
        "ROTA_NAMESPACE": NAMESPACE,
        "ROTA_REDIS_URL": url,
        "ROTA_TIERS": json.dumps([[QUEUE]]),
        "ROTA_WORKERS": str(WORKERS),
        "ROTA_POLLERS": str(POLLERS),
        "ROTA_LOG__LEVEL": "warning",
        "ROTA_LOG__FORMAT": "json",
    }


def loaded(url: str) -> Loaded:
    """Return the configuration of a node, as its master loads it."""
    return load_config(Sources(environment=environment(url)))
