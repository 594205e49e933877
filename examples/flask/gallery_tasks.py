"""The gallery's tasks, in a module without Flask: workers import this and no more."""

import rota


@rota.task(retries=3, time_limit=60, result_ttl=3600)
def make_thumbnail(name: str) -> str:
    """Make a thumbnail of a picture; returns its name."""
    if not name.endswith(".png"):
        raise rota.Dead(f"{name} is no picture")
    return f"small-{name}"
