#!lua flags=no-writes
-- The nodes whose masters live, and those that have been silent for some minutes.
-- with: prefix clock numbers
-- KEYS[1]  tasks
-- keys     nodes tasks
-- returns  (node, its heartbeat, us until that is over: not above 0 of one that is silent)..., of at most 500
local MOST = 500
local now = redis_now()
local found = redis.pcall('HGETALL', PREFIX .. 'nodes')
if found.err then found = {} end -- of another type it stops nothing
local answer = {}
for i = 1, #found, 2 do
  local ends, heartbeat = string.match(found[i + 1], '^(%d+) (.*)$')
  ends = whole(ends)
  if ends and #answer < 3 * MOST then
    answer[#answer + 1] = found[i]
    answer[#answer + 1] = heartbeat
    answer[#answer + 1] = digits_of(ends - now)
  end
end
return answer
