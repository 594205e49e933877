"""Well-known systems from the Python Package Index. Each is set up as its documentation recommends for production.

Each worker is a process, which runs one task at a time unless noted otherwise. All systems import the same tasks, which
need only the standard library.
"""

import dataclasses

from benchmarks.contender import AT_ONCE, EVERYTHING, ROOT, Contender, Plain

ENVIRONMENTS = ROOT / ".venv-bench"
PEERS_PYTHON = ENVIRONMENTS / "peers" / "bin" / "python"
OLDER_PYTHON = ENVIRONMENTS / "older" / "bin" / "python"  # arq and SAQ do not support redis-py 8

RQ: Contender = Plain(
    name="rq",
    app="benchmarks.peers.rq_app",
    argv=[["{bin}/rq", "worker-pool", "-c", "benchmarks.peers.rq_app", "-n", "{workers}", "-l", "WARNING", "bench"]],
    settings=(
        "`worker-pool` with its default worker (one process for each job), `Retry(max=3)`, no results, tasks imported "
        "before the fork"
    ),
    python=PEERS_PYTHON,
)
CELERY: Contender = Plain(
    name="celery",
    app="benchmarks.peers.celery_app",
    argv=[
        [
            *("{bin}/celery", "-A", "benchmarks.peers.celery_app", "worker", "-P", "prefork", "-c", "{workers}"),
            *("--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "WARNING"),
        ]
    ],
    settings=(
        "prefork, `acks_late`, `reject_on_worker_lost`, a prefetch multiplier of 64 (as its documentation advises for "
        "short tasks), no results, no gossip"
    ),
    python=PEERS_PYTHON,
)
DRAMATIQ = Plain(
    name="dramatiq",
    app="benchmarks.peers.dramatiq_app",
    argv=[["{bin}/dramatiq", "benchmarks.peers.dramatiq_app", "-p", "{workers}", "-t", "1"]],
    settings="processes with one thread each, a prefetch of 64",
    python=PEERS_PYTHON,
    extra={"dramatiq_queue_prefetch": "64"},
)
DRAMATIQ_AT_ONCE = dataclasses.replace(
    DRAMATIQ,
    name="dramatiq-c8",
    argv=[["{bin}/dramatiq", "benchmarks.peers.dramatiq_app", "-p", "{workers}", "-t", "8"]],
    settings="as dramatiq, with the default of 8 threads in each process",
    measures=frozenset({"drain", "burst"}),
)
HUEY: Contender = Plain(
    name="huey",
    app="benchmarks.peers.huey_app",
    argv=[["{bin}/huey_consumer", "benchmarks.peers.huey_app.huey", "-w", "{workers}", "-k", "process", "-q"]],
    settings="consumer with processes, Redis storage with blocking pops, no results. A task of a killed worker is lost",
    at_least_once=False,
    python=PEERS_PYTHON,
)
ARQ = Plain(
    name="arq",
    app="benchmarks.peers.arq_app",
    argv=[["{bin}/arq", "benchmarks.peers.arq_app.WorkerSettings"]],
    settings=(
        "one process for each worker, ten tasks at once in each, which is the default (with one, it starts two a "
        "second), no results"
    ),
    measures=EVERYTHING - {"work"},  # a process runs ten tasks at once, so its time in tasks is not comparable
    python=OLDER_PYTHON,
    copies=True,
)
SAQ = Plain(
    name="saq",
    app="benchmarks.peers.saq_app",
    argv=[["{bin}/saq", "benchmarks.peers.saq_app.settings", "--workers", "{workers}", "--quiet"]],
    settings=(
        "`--workers`, one task at a time in each, 3 retries, no results. Its schedule has whole seconds, so due times "
        "are rounded up"
    ),
    python=OLDER_PYTHON,
)
TASKIQ = Plain(
    name="taskiq",
    app="benchmarks.peers.taskiq_app",
    argv=[
        [
            *("{bin}/taskiq", "worker", "benchmarks.peers.taskiq_app:broker", "--workers", "{workers}"),
            *("--max-async-tasks", "1", "--log-level", "WARNING"),
        ],
        [
            *("{bin}/taskiq", "scheduler", "benchmarks.peers.taskiq_app:scheduler", "--log-level", "WARNING"),
            *("--update-interval", "1"),
        ],
    ],
    settings=(
        "taskiq-redis with acknowledged streams; one task at a time in each process; a scheduler that checks every "
        "second"
    ),
    measures=EVERYTHING - {"start"},  # tasks that are sent before the consumer group exists are never read
    python=PEERS_PYTHON,
)
ARQ_AT_ONCE = dataclasses.replace(
    ARQ,
    name="arq-c100",
    settings="as arq, `max_jobs` 100, a `poll_delay` of 2 ms instead of 0.5 s",
    measures=AT_ONCE | {"drain", "burst"},
    extra={"BENCH_AT_ONCE": "100", "BENCH_POLL_SECONDS": "0.002"},
)
SAQ_AT_ONCE = dataclasses.replace(
    SAQ,
    name="saq-c100",
    settings="as saq, concurrency 100",
    measures=AT_ONCE,
    extra={"BENCH_AT_ONCE": "100"},
)
TASKIQ_AT_ONCE: Contender = Plain(
    name="taskiq-c100",
    app=TASKIQ.app,
    argv=[
        [
            *("{bin}/taskiq", "worker", "benchmarks.peers.taskiq_app:broker", "--workers", "{workers}"),
            *("--max-async-tasks", "100", "--max-prefetch", "100", "--log-level", "WARNING"),
        ]
    ],
    settings="as taskiq, 100 tasks at once, 100 prefetched",
    python=PEERS_PYTHON,
    measures=AT_ONCE,
)
PYTHON_PEERS: tuple[Contender, ...] = (
    *(RQ, CELERY, DRAMATIQ, HUEY, ARQ, SAQ, TASKIQ),
    *(DRAMATIQ_AT_ONCE, ARQ_AT_ONCE, SAQ_AT_ONCE, TASKIQ_AT_ONCE),
)
