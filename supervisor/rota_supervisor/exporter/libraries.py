"""What the exporter uses of h11 and prometheus_client, imported without what they bring along for other uses.

Measured with CPython 3.11, h11 0.16 and prometheus_client 0.26, of private memory: 0.8 MB so (0.4 are h11's), 6.5 MB
as they are.
"""

import sys

from rota.telemetry.stand_ins import Unused, importing_with

# One class of h11 has no docstring, and dataclasses would write it; later versions look at each class with inspect.
with importing_with([Unused("inspect")] if sys.version_info < (3, 12) else ()):
    import h11

# For serving by itself, with TLS or without, for pushing to a gateway, for metrics as decorators, and for those of its
# own process, which it would collect.
_OF_PROMETHEUS = (
    "http.server",
    "prometheus_client.asgi",
    "prometheus_client.gc_collector",
    "prometheus_client.metrics",
    "prometheus_client.platform_collector",
    "prometheus_client.process_collector",
    "socketserver",
    "ssl",
    "urllib.error",
    "urllib.request",
    "wsgiref.simple_server",
)

with importing_with(map(Unused, _OF_PROMETHEUS)):
    from prometheus_client import core as prometheus
    from prometheus_client.exposition import choose_encoder

__all__ = ["choose_encoder", "h11", "prometheus"]
