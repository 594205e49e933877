#!lua flags=no-writes
-- The nodes whose masters live.
-- with: prefix clock numbers
-- KEYS[1]  tasks
-- returns  (node, its heartbeat)..., of at most 500
local MOST = 500
local now = redis_now()
local found = redis.pcall('HGETALL', PREFIX .. 'nodes')
if found.err then found = {} end -- of another type it stops nothing
local answer = {}
for i = 1, #found, 2 do
  local ends, heartbeat = string.match(found[i + 1], '^(%d+) (.*)$')
  if (whole(ends) or 0) > now and #answer < 2 * MOST then
    answer[#answer + 1] = found[i]
    answer[#answer + 1] = heartbeat
  end
end
return answer
