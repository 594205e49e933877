#!lua flags=allow-oom
-- Remove a schedule, and cancel its occurrences that were enqueued ahead of time. Ready and running tasks continue.
-- with: prefix clock numbers entry doorbell counters in_use incarnations legacy_item task_events waiters following
-- with: schedules
-- with: withdrawal
-- KEYS[1]  tasks
-- ARGV
--   name      name of the schedule
--   patience  microseconds that must have passed since the last declaration expired before a declared schedule can be
--             removed; '' for a client, which cannot remove a declared schedule
-- keys     counts dead delayed doorbell doorbell:* ends ends-sealed ends-untold ends:* epitaphs events events-on former
--          group-members:* group:* groups idle keys members meta patterns paused progress queue:* queues ready
--          replies:* result:* schedules schedules-alive schedules-declared schedules-due served tasks tickets times:*
--          totals turns:* unique:* waiters
-- returns  removed | unknown | declared (a node declares it; nothing was changed)
-- Invariant: a schedule that a node declares is never removed.
local name, patience, now = ARGV[1], whole(ARGV[2]), redis_now()
guard_schedules()
guard_task_keys()
local s = schedule_of(name)
if not s then
  redis.call('ZREM', SCHEDULES_DUE, name)
  redis.call('ZREM', DECLARED, name)
  return 'unknown'
end
local until_us = tonumber(redis.call('ZSCORE', DECLARED, name) or '')
if s.rank > 0 and not (patience and until_us and until_us + patience <= now) then return 'declared' end
withdraw(name, s, 0, now)
redis.call('HDEL', SCHEDULES, name)
redis.call('ZREM', SCHEDULES_DUE, name)
redis.call('ZREM', DECLARED, name)
redis.call('HDEL', ALIVE, name)
return 'removed'
