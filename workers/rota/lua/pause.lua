#!lua flags=allow-oom
-- Pause a queue, so that nothing is claimed from it. Running tasks continue, and new tasks are accepted and wait.
-- with: prefix clock numbers
-- KEYS[1]  tasks
-- ARGV
--   queue  name of the queue
-- keys     closed paused tasks
-- returns  1 if the queue was not paused before, otherwise 0
-- Invariant: nothing is claimed from the queue after the script has returned.
local queue = ARGV[1]
local is_new = redis.call('SADD', PREFIX .. 'paused', queue)
-- Record when the queue was paused, unless it was already closed.
if is_new == 1 then redis.pcall('HSETNX', PREFIX .. 'closed', queue, digits_of(redis_now())) end
return is_new
