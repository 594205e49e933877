#!lua flags=allow-oom
-- Keep the dead set within its age and size, at most 500 a call.
-- with: prefix clock entry books bare in_use former news forget
-- KEYS[1]  tasks
-- ARGV
--   age   us, of the oldest to keep
--   most  how many to keep
-- keys     counts dead delayed epitaphs events events-on former keys members patterns paused progress ready tasks
--          tickets totals waiters
-- returns  how many were forgotten, whether there are more 0|1
-- Invariant: only dead tasks are forgotten, the oldest first.
local MOST = 500
guard_places()
local dead = PREFIX .. 'dead'
local age, most = tonumber(ARGV[1]), tonumber(ARGV[2])
local oldest = to_score(redis_now() - age)
local forgotten = forget_all(redis.call('ZRANGEBYSCORE', dead, '-inf', oldest, 'LIMIT', 0, MOST))
local surplus = math.min(redis.call('ZCARD', dead) - most, MOST - forgotten)
if surplus > 0 then forgotten = forgotten + forget_all(redis.call('ZRANGE', dead, 0, surplus - 1)) end
return { forgotten, forgotten >= MOST and 1 or 0 }
