#!lua flags=allow-oom
-- Delete the oldest dead tasks, so that the dead set does not exceed its maximum age and size. A call deletes at most
-- 500 tasks.
-- with: prefix clock entry counters legacy_item in_use incarnations task_events forget
-- KEYS[1]  tasks
-- ARGV
--   age   maximum age in microseconds
--   most  maximum number of dead tasks
-- keys     counts dead delayed epitaphs events events-on former keys members patterns paused progress ready tasks
--          tickets totals waiters
-- returns  the number of deleted tasks, 0|1 whether there are more to delete
-- Invariant: only dead tasks are deleted, the oldest first.
local MOST = 500
guard_task_keys()
local dead = PREFIX .. 'dead'
local age, most = tonumber(ARGV[1]), tonumber(ARGV[2])
local oldest = to_score(redis_now() - age)
local forgotten = forget_all(redis.call('ZRANGEBYSCORE', dead, '-inf', oldest, 'LIMIT', 0, MOST))
local surplus = math.min(redis.call('ZCARD', dead) - most, MOST - forgotten)
if surplus > 0 then forgotten = forgotten + forget_all(redis.call('ZRANGE', dead, 0, surplus - 1)) end
return { forgotten, forgotten >= MOST and 1 or 0 }
