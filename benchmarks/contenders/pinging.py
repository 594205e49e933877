"""A worker that only pings between two tasks. It is the reference for tasks that are claimed one at a time."""

from benchmarks.contender import Contender, Plain

PINGING: Contender = Plain(
    name="pinging",
    app="benchmarks.apps.pinging_app",
    argv=[["{python}", "-m", "benchmarks.apps.pinging_app"]],
    copies=True,
    settings="`PING` through redis-py before each task, and no claim: each worker is told at once how many it is to do",
    at_least_once=False,
    measures=frozenset({"work"}),
)
