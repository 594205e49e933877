#!lua flags=no-writes
-- Return the ids of live tasks that are not delayed, not dead, and not in the list of a registered owner. Such a task
-- is in a lane, or nowhere. A task that was cancelled while it waited counts as live until its entry is dropped.
-- with: prefix lists locations
-- KEYS[1]  tasks
-- ARGV
--   id  id to check; up to 500
-- keys     dead delayed inflight:* owners tasks
-- returns  the given ids that belong to such tasks
local live = {}
for _, id in ipairs(ARGV) do
  if redis.call('HEXISTS', KEYS[1], id) == 1 then live[#live + 1] = id end
end
return in_lane_or_nowhere(live, held_ids())
