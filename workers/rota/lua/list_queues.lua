#!lua flags=allow-oom
-- Note queues of which a lane was seen: a bare push to a queue that nobody serves tells nobody of it. From then on
-- sweeps, listings and metrics know it.
-- with: prefix bare doorbell
-- KEYS[1]  tasks
-- ARGV     up to 500 names
-- returns  how many were not known
local noted = 0
for _, queue in ipairs(ARGV) do
  if queue_or_nil(queue) and entries_in(queue) > 0 then
    noted = noted + redis.call('SADD', PREFIX .. 'queues', queue)
  end
end
return noted
