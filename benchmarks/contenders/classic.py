"""The classic loop: no settling, no schedule, no books. The mark that speed is measured against."""

from benchmarks.contender import UNSCHEDULED, Contender, Plain

CLASSIC: Contender = Plain(
    name="classic",
    app="benchmarks.apps.classic_app",
    argv=[["{python}", "-m", "benchmarks.apps.classic_app"]],
    copies=True,
    settings=(
        "`RPUSH`; `BLPOP`, decode, look up, call, through redis-py with `socket_timeout=None`. It loses what a killed "
        "worker holds, and schedules nothing"
    ),
    at_least_once=False,
    measures=UNSCHEDULED | {"load"},
)
