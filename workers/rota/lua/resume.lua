#!lua flags=allow-oom
-- Let claims go on, and ring: nobody rang while it was paused.
-- with: prefix doorbell
-- KEYS[1]  tasks
-- ARGV
--   queue  its name
-- keys     closed doorbell doorbell:* events-on former idle members patterns paused progress queue:* ready served tasks
--          times:* turns:* waiters
-- returns  1 when it was paused, else 0
-- Invariant: whoever sleeps at the bell of the queue wakes if the queue holds entries.
local queue = ARGV[1]
local was = redis.call('SREM', PREFIX .. 'paused', queue)
redis.pcall('HDEL', PREFIX .. 'closed', queue)
if entries_in(queue) > 0 then
  redis.call('SADD', PREFIX .. 'ready', queue)
  ring(queue)
elseif any_patterns then
  mark(queue) -- claims that passed it over are to see that it is empty
end
return was
