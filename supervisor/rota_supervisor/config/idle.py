"""Keys that are accepted and have no effect in this version: whoever sets one is told, and not left to hope."""

from collections.abc import Iterator

from rota_supervisor.config.model import Config

IDLE_KEYS = frozenset(
    {
        "pools.NAME.concurrency",
        "events.enabled",
        "events.max_length",
    }
)


def warnings_of_idle_keys(config: Config) -> list[str]:
    """A warning for each of these that was given a value of its own."""
    return [f"{path} has no effect in this version of Rota" for path in _idle_paths(config)]


def _idle_paths(config: Config) -> Iterator[str]:
    usual = Config()
    given = {
        "events.enabled": config.events.enabled != usual.events.enabled,
    }
    yield from (path for path, is_given in given.items() if is_given)
    yield from (f"pools.{name}.concurrency" for name, pool in config.pools.items() if pool.concurrency > 1)
