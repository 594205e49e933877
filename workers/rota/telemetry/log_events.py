"""The names of all events that Rota logs. No other module contains the name of an event. `docs/events.md` lists
them."""

from typing import Final

TASK_DONE: Final = "task.done"
TASK_RETRIED: Final = "task.retried"
TASK_DEAD: Final = "task.dead"
TASK_RELEASED: Final = "task.released"
TASK_CANCELLED: Final = "task.cancelled"
TASK_CANCEL_REQUESTED: Final = "task.cancel_requested"
TASK_EXPIRED: Final = "task.expired"
TASK_PRINTED: Final = "task.printed"
TASK_STALE: Final = "task.stale"
TASK_RECOVERED: Final = "task.recovered"
CLAIM_RETURNED: Final = "claim.returned"

WORKER_STARTED: Final = "worker.started"
WORKER_EXITED: Final = "worker.exited"
WORKER_KILLED: Final = "worker.killed"
WORKER_HUNG: Final = "worker.hung"
WORKER_LOST: Final = "worker.lost"
WORKER_FENCED: Final = "worker.fenced"
WORKER_BLOCKED: Final = "worker.blocked"
WORKER_STACK: Final = "worker.stack"
HOOK_FAILED: Final = "hook.failed"

ZYGOTE_READY: Final = "zygote.ready"
ZYGOTE_FAILED: Final = "zygote.failed"
ZYGOTE_WARNING: Final = "zygote.warning"
ZYGOTE_EXITED: Final = "zygote.exited"

POLLER_STARTED: Final = "poller.started"
POLLER_EXITED: Final = "poller.exited"
POLLER_RESCUED: Final = "poller.rescued"
POLLER_GRACE: Final = "poller.grace"

ADOPT_TRACKING_REFUSED: Final = "adopt.tracking_refused"
ADOPT_FAILED: Final = "adopt.failed"
SCHEDULE_DECLARED: Final = "schedule.declared"
SCHEDULE_NOT_DECLARED: Final = "schedule.not_declared"
SCHEDULE_REMOVED: Final = "schedule.removed"
SCHEDULE_SKIPPED: Final = "schedule.skipped"
SCHEDULE_MISSED: Final = "schedule.missed"
SCHEDULE_UNREADABLE: Final = "schedule.unreadable"

AUDIT_UNPLACED: Final = "audit.unplaced"
QUEUE_STRAY: Final = "queue.stray"

EXPORTER_STARTED: Final = "exporter.started"
EXPORTER_EXITED: Final = "exporter.exited"
EXPORTER_ACTION: Final = "exporter.action"
EXPORTER_REQUEST_FAILED: Final = "exporter.request_failed"

# Exactly one of these events is logged for each child that ends.
DEATHS: Final = (WORKER_EXITED, WORKER_KILLED, WORKER_HUNG, ZYGOTE_EXITED, POLLER_EXITED, EXPORTER_EXITED)

POOL_BACKOFF: Final = "pool.backoff"
POOL_FATAL: Final = "pool.fatal"
POOL_BACK: Final = "pool.back"

CONFIG_RELOADED: Final = "config.reloaded"
CONFIG_REJECTED: Final = "config.rejected"
CONFIG_WARNING: Final = "config.warning"

CONDITION_FAILED: Final = "condition.failed"
CONDITION_WORKS: Final = "condition.works"

REDIS_LOST: Final = "redis.lost"
REDIS_BACK: Final = "redis.back"
REDIS_REFUSED: Final = "redis.refused"
LOGIN_RENEWED: Final = "login.renewed"
LOGIN_FAILED: Final = "login.failed"
REDIS_EVICTS_KEYS: Final = "redis.evicts_keys"
REDIS_KEEPS_KEYS: Final = "redis.keeps_keys"

EMBEDDED_RESTARTED: Final = "embedded.restarted"

FLEET_STARTING: Final = "fleet.starting"
FLEET_READY: Final = "fleet.ready"
FLEET_SCALED: Final = "fleet.scaled"
FLEET_AUTOSCALED: Final = "fleet.autoscaled"
FLEET_QUIET: Final = "fleet.quiet"
FLEET_RESUMED: Final = "fleet.resumed"
FLEET_REFUSED: Final = "fleet.refused"
FLEET_STATUS: Final = "fleet.status"
FLEET_DRAINING: Final = "fleet.draining"
FLEET_WAITING: Final = "fleet.waiting"
FLEET_STOPPED: Final = "fleet.stopped"
FLEET_FAILED: Final = "fleet.failed"
FLEET_CALL_FAILED: Final = "fleet.call_failed"
