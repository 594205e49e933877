#!lua flags=allow-oom
-- Note queues of which a lane was seen: a bare push to a queue that nobody serves tells nobody of it. From then on
-- sweeps, listings and metrics know it.
-- with: prefix bare doorbell
-- KEYS[1]  tasks
-- ARGV
--   queue  up to 500
-- keys     doorbell doorbell:* events-on former idle members patterns paused progress queue:* queues served tasks
--          times:* turns:* waiters
-- returns  how many were not known
-- Invariant: only queues that hold entries are noted.
local noted = 0
for _, queue in ipairs(ARGV) do
  if queue_or_nil(queue) and entries_in(queue) > 0 then
    noted = noted + redis.call('SADD', PREFIX .. 'queues', queue)
  end
end
return noted
