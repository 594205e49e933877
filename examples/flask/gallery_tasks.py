"""The gallery's tasks. Workers import only this module, so it does not import Flask."""

import rota


@rota.task(retries=3, time_limit=60, result_ttl=3600)
def make_thumbnail(name: str) -> str:
    """Make a thumbnail of a picture and return its name."""
    if not name.endswith(".png"):
        raise rota.Dead(f"{name} is not a picture")
    return f"small-{name}"
