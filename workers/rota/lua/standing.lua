#!lua flags=no-writes
-- The ids that stand in lists, up to 500 a call. A list is read from its tail: what enters or leaves a lane at its head
-- moves nothing of what is still to be read, and what enters at the tail moves it further away, so that it is read
-- twice rather than not at all.
-- with: prefix in_use former
-- KEYS[1]  tasks
-- ARGV
--   from   how many entries of the first list were read before
--   lists  without the prefix
-- keys     events-on former inflight:* members patterns paused progress queue:* tasks waiters
-- returns  how many of the lists are read to their head, how much of the next one is, ids
local MOST, LONGEST = 500, 384

-- The id of the task that stands there; '' for a bare item, which is none yet, and for the shell of a former life.
local function id_at(line)
  if #line > LONGEST then return '' end
  local id, flag = string.match(line, '^([%w_.:-]+) .- (%S+)$')
  if not id or any_former and is_shell(id, flag) then return '' end
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
