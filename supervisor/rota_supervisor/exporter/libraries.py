"""What the exporter uses of h11 and prometheus_client, imported without what they bring along for other uses.

Measured with CPython 3.11, h11 0.16 and prometheus_client 0.26, of private memory: 0.7 MB so (0.2 are h11's), 5.4 MB
as they are.
"""

import sys

from rota.telemetry.stand_ins import Unused, importing_with

# One class of h11 has no docstring, and dataclasses would write it; later versions look at each class with inspect.
with importing_with([Unused("inspect")] if sys.version_info < (3, 12) else ()):
    import h11

# For serving by itself, with TLS or without, for pushing to a gateway, and for metrics as decorators.
_OF_PROMETHEUS = (
    "http.server",
    "prometheus_client.context_managers",
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
