#!lua flags=no-writes
-- The ids that stand in lists, up to 500 a call. A list is read from its tail: what enters or leaves a lane at its head
-- moves nothing of what is still to be read, and what enters at the tail moves it further away, so that it is read twice
-- rather than not at all.
-- with: prefix lists
-- KEYS[1]  tasks
-- ARGV     how many entries of the first list were read before, then lists without the prefix
-- returns  how many of the lists are read to their head, how much of the next one is, ids
local MOST, LONGEST_ID = 500, 128
local from, ids, read = tonumber(ARGV[1]), {}, 0
for i = 2, #ARGV do
  local lines = redis.pcall('LRANGE', PREFIX .. ARGV[i], -(from + MOST - #ids), -(from + 1))
  for _, line in ipairs(lines.err and {} or lines) do
    local id = string.match(string.sub(line, 1, LONGEST_ID + 1), '^([%w_.:-]+) ')
    ids[#ids + 1] = id or '' -- a bare item stands for no task yet
  end
  if #ids >= MOST then return { read, from + #lines, ids } end
  read, from = read + 1, 0
end
return { read, 0, ids }
