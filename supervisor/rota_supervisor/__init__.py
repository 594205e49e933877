"""The supervising side of Rota: master, zygote, exporter, configuration and command line."""

from rota.telemetry.stand_ins import LoadedWhenTouched, importing_with

# Here, as each process of a fleet begins with this package. Measured with CPython 3.11, of each process that does not
# need them for something else: inspect 1.3 MB, with which dataclasses writes docstrings, and ours are there already
# (later versions look at each class with it, and load it); ipaddress 0.3 MB, for hosts of URLs in brackets.
with importing_with(map(LoadedWhenTouched, ("inspect", "ipaddress"))):
    import dataclasses  # noqa: F401 - these two are imported so that they are there for all
    import urllib.parse  # noqa: F401
