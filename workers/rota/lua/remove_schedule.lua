#!lua flags=allow-oom
-- Remove a schedule, and take back what of it was enqueued before its time. What waits or runs goes on.
-- with: prefix clock numbers entry doorbell books in_use former bare news waiters following schedules withdrawal
-- KEYS[1]  tasks
-- ARGV
--   name      of the schedule
--   patience  after how many us without a declaration, '' for a client
-- keys     counts dead delayed doorbell doorbell:* ends ends-sealed ends-untold ends:* epitaphs events events-on former
--          group-members:* group:* groups idle keys members meta patterns paused progress queue:* queues ready
--          replies:* result:* schedules schedules-alive schedules-declared schedules-due served tasks tickets times:*
--          totals turns:* unique:* waiters
-- returns  removed | unknown | declared (it is declared by some node: nothing was done)
-- Invariant: a schedule that a node declares is never removed.
local name, patience, now = ARGV[1], whole(ARGV[2]), redis_now()
guard_schedules()
guard_places()
local s = schedule_of(name)
if not s then
  redis.call('ZREM', SCHEDULES_DUE, name)
  redis.call('ZREM', DECLARED, name)
  return 'unknown'
end
local untill = tonumber(redis.call('ZSCORE', DECLARED, name) or '')
if s.rank > 0 and not (patience and untill and untill + patience <= now) then return 'declared' end
withdraw(name, s, 0, now)
redis.call('HDEL', SCHEDULES, name)
redis.call('ZREM', SCHEDULES_DUE, name)
redis.call('ZREM', DECLARED, name)
redis.call('HDEL', ALIVE, name)
return 'removed'
