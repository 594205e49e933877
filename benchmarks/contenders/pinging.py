"""A worker that only pings the server between tasks. It is the reference for systems whose workers claim one task at a
time.
"""

from benchmarks.contender import Contender, Plain

PINGING: Contender = Plain(
    name="pinging",
    app="benchmarks.apps.pinging_app",
    argv=[["{python}", "-m", "benchmarks.apps.pinging_app"]],
    copies=True,
    settings=(
        "`PING` through redis-py before each task, and no claim: each worker receives all of its tasks in one message"
    ),
    at_least_once=False,
    measures=frozenset({"work"}),
)
