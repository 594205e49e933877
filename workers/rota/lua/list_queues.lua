#!lua flags=allow-oom
-- Add queues that have entries to the set of known queues, so that sweeps, listings and metrics include them. This is
-- needed for queues that no worker serves, because otherwise no process would notice items that a program pushes
-- directly to their lanes.
-- with: prefix legacy_item doorbell
-- KEYS[1]  tasks
-- ARGV
--   queue  name of a queue; up to 500
-- keys     doorbell doorbell:* events-on former idle members patterns paused progress queue:* queues served tasks
--          times:* turns:* waiters
-- returns  the number of queues that were added
-- Invariant: only queues with entries are added.
local noted = 0
for _, queue in ipairs(ARGV) do
  if queue_or_nil(queue) and entries_in(queue) > 0 then
    noted = noted + redis.call('SADD', PREFIX .. 'queues', queue)
  end
end
return noted
