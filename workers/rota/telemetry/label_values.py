"""The label values of metrics that are sets fixed in advance: their series are there from the start, at 0.

`queue`, `task`, `pool` and `slot` are bounded by the configuration.
"""

from typing import Final

from rota.protocol.entry import Kind

OTHER: Final = "_other"  # the value of every label of a series that found no room

# Without those that most queues never have.
KINDS: Final = tuple(kind.label for kind in Kind if kind not in (Kind.THROTTLED, Kind.RECOVERED))
WORKER_STATES: Final = ("booting", "running", "quiet", "draining", "backoff", "fatal")
RESTART_REASONS: Final = (
    *("crash", "signal", "oom", "hung", "timeout", "cancelled"),
    *("max_tasks", "max_rss", "reload", "boot"),
)
CHILD_ROLES: Final = ("exporter", "zygote", "poller", "worker")
RECOVERY_REASONS: Final = ("child_exit", "lease_expired")
RELOAD_RESULTS: Final = ("success", "failure")
# All begin with the first, so that the next one counts in an `increase()`.
OCCURRENCE_OUTCOMES: Final = ("enqueued", "missed", "skipped")
