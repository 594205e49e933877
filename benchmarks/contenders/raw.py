"""The limits of redis-py with one connection, for single RPUSH commands and for RPUSH commands in pipelines."""

from benchmarks.contender import Contender, Plain

RAW: Contender = Plain(
    name="raw",
    app="benchmarks.apps.raw_app",
    argv=[],
    settings="redis-py: `RPUSH` of one prepared text, singly and in pipelines of 500",
    at_least_once=False,
    measures=frozenset({"enqueue"}),
)
