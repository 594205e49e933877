#!lua flags=allow-oom
-- Keep the dead set within its age and size, at most 500 a call.
-- with: prefix clock entry books bare in_use former news forget
-- KEYS[1]  tasks
-- ARGV     most age us, most tasks
-- returns  how many were forgotten, whether there are more 0|1
local MOST = 500
guard_places()
local dead = PREFIX .. 'dead'
local oldest = to_score(redis_now() - tonumber(ARGV[1]))
local forgotten = forget_all(redis.call('ZRANGEBYSCORE', dead, '-inf', oldest, 'LIMIT', 0, MOST))
local surplus = math.min(redis.call('ZCARD', dead) - tonumber(ARGV[2]), MOST - forgotten)
if surplus > 0 then forgotten = forgotten + forget_all(redis.call('ZRANGE', dead, 0, surplus - 1)) end
return { forgotten, forgotten >= MOST and 1 or 0 }
