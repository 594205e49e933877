#!lua flags=allow-oom
-- Stop claims from a queue. What runs goes on; pushes are accepted and wait.
-- with: prefix clock numbers
-- KEYS[1]  tasks
-- ARGV     queue
-- returns  1 when it was not paused before, else 0
local is_new = redis.call('SADD', PREFIX .. 'paused', ARGV[1])
if is_new == 1 then redis.pcall('HSETNX', PREFIX .. 'closed', ARGV[1], digits_of(redis_now())) end -- since when
return is_new
