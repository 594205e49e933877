#!lua flags=allow-oom
-- Resume a paused queue. The script also removes the queue's field in `closed`, and rings its doorbell if the queue has
-- entries, because no script rings the doorbell of a paused queue.
-- with: prefix doorbell
-- KEYS[1]  tasks
-- ARGV
--   queue  name of the queue
-- keys     closed doorbell doorbell:* events-on former idle members patterns paused progress queue:* ready served tasks
--          times:* turns:* waiters
-- returns  1 if the queue was paused, otherwise 0
-- Invariant: if the queue holds entries, a worker that sleeps at its doorbell wakes.
local queue = ARGV[1]
local was = redis.call('SREM', PREFIX .. 'paused', queue)
redis.pcall('HDEL', PREFIX .. 'closed', queue)
if entries_in(queue) > 0 then
  redis.call('SADD', PREFIX .. 'ready', queue)
  ring(queue)
elseif any_patterns then
  mark(queue) -- the next claim checks the queue again, and finds that it is empty
end
return was
