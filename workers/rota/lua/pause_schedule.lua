#!lua flags=allow-oom
-- Pause a schedule, and cancel its occurrences that were enqueued ahead of time. Ready and running tasks continue.
-- with: prefix clock numbers entry doorbell counters in_use incarnations legacy_item task_events waiters following
-- with: schedules
-- with: withdrawal
-- KEYS[1]  tasks
-- ARGV
--   name  name of the schedule
-- keys     counts dead delayed doorbell doorbell:* ends ends-sealed ends-untold ends:* epitaphs events events-on former
--          group-members:* group:* groups idle keys members meta patterns paused progress queue:* queues ready
--          replies:* result:* schedules schedules-alive schedules-declared schedules-due served tasks tickets times:*
--          totals turns:* unique:* waiters
-- returns  paused | same (it was already paused) | unknown
-- Invariant: no future occurrence of the schedule is left in `delayed`.
local name, now = ARGV[1], redis_now()
guard_schedules()
guard_task_keys()
local s = schedule_of(name)
if not s then return 'unknown' end
if s.paused > 0 then return 'same' end
withdraw(name, s, 0, now)
s.paused = now
keep_schedule(name, s)
return 'paused'
