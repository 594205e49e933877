"""The classic loop, which does not acknowledge tasks and has neither schedules nor counters. The speed of all other
contenders is given relative to this loop.
"""

from benchmarks.contender import UNSCHEDULED, Contender, Plain

CLASSIC: Contender = Plain(
    name="classic",
    app="benchmarks.apps.classic_app",
    argv=[["{python}", "-m", "benchmarks.apps.classic_app"]],
    copies=True,
    settings=(
        "`RPUSH`; `BLPOP`, decode, look up, call, through redis-py with `socket_timeout=None`. A task of a killed "
        "worker is lost, and there are no schedules"
    ),
    at_least_once=False,
    measures=UNSCHEDULED | {"load"},
)
