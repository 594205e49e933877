#!lua flags=no-writes
-- Return the lanes and in-flight lists that hold entries. An audit begins by scanning these lists.
-- with: prefix doorbell
-- KEYS[1]  tasks
-- keys     doorbell doorbell:* events-on former idle inflight:* members owners patterns paused progress queue:* queues
--          served tasks times:* turns:* waiters
-- returns  the number of entries in all lists, then the keys, without the prefix, of the lists that have entries
local entries, lists = 0, {}
local function note(list)
  local n = length(list)
  entries = entries + n
  if n > 0 then lists[#lists + 1] = string.sub(list, #PREFIX + 1) end
end
for _, queue in ipairs(redis.call('SMEMBERS', PREFIX .. 'queues')) do
  note(ready_lane(queue))
  note(delayed_lane(queue))
end
for _, owner in ipairs(redis.call('ZRANGE', PREFIX .. 'owners', 0, -1)) do note(PREFIX .. 'inflight:' .. owner) end
return { entries, lists }
