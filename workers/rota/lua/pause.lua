#!lua flags=allow-oom
-- Stop claims from a queue. What runs goes on; pushes are accepted and wait.
-- with: prefix clock numbers
-- KEYS[1]  tasks
-- ARGV
--   queue  its name
-- keys     closed paused tasks
-- returns  1 when it was not paused before, else 0
-- Invariant: nothing is claimed from the queue when this has returned.
local queue = ARGV[1]
local is_new = redis.call('SADD', PREFIX .. 'paused', queue)
if is_new == 1 then redis.pcall('HSETNX', PREFIX .. 'closed', queue, digits_of(redis_now())) end -- since when
return is_new
