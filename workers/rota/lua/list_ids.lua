#!lua flags=no-writes
-- Return the ids of the tasks in lists, up to 500 per call. Lists are read from the tail. So entries that enter or
-- leave a lane at its head do not shift the entries that are still to be read. Entries that are pushed to the tail do
-- shift the rest. Some entries are then read twice, but none is missed.
-- with: prefix in_use incarnations
-- KEYS[1]  tasks
-- ARGV
--   from   number of entries of the first list that earlier calls have read
--   lists  keys of the lists, without the prefix
-- keys     events-on former inflight:* members patterns paused progress queue:* tasks waiters
-- returns  the number of lists that were read completely, the number of entries of the next list that were read, and
--          the ids
local MOST, LONGEST = 500, 384

-- Return the id of an entry's task. Return '' for a legacy item, which has no task yet, and for a tombstone, which is
-- the entry of a cancelled task whose id was used again.
local function id_at(line)
  if #line > LONGEST then return '' end
  local id, flag = string.match(line, '^([%w_.:-]+) .- (%S+)$')
  if not id or any_incarnations and is_tombstone(id, flag) then return '' end
  return id
end

local from, lists = tonumber(ARGV[1]), { unpack(ARGV, 2) }
local ids, read = {}, 0
for i = 1, #lists do
  local lines = redis.pcall('LRANGE', PREFIX .. lists[i], -(from + MOST - #ids), -(from + 1))
  for _, line in ipairs(lines.err and {} or lines) do ids[#ids + 1] = id_at(line) end
  if #ids >= MOST then return { read, from + #lines, ids } end
  read, from = read + 1, 0
end
return { read, 0, ids }
