#!lua flags=no-writes
-- Return the nodes whose masters are alive, and the nodes that have been silent for up to 5 minutes.
-- with: prefix clock numbers
-- KEYS[1]  tasks
-- keys     nodes tasks
-- returns  (node, its heartbeat, microseconds until the heartbeat expires; 0 or less for a silent node) for at most 500
--          nodes
local MOST = 500
local now = redis_now()
local found = redis.pcall('HGETALL', PREFIX .. 'nodes')
if found.err then found = {} end -- a key of the wrong type counts as empty
local reply = {}
for i = 1, #found, 2 do
  local ends, heartbeat = string.match(found[i + 1], '^(%d+) (.*)$')
  ends = whole(ends)
  if ends and #reply < 3 * MOST then
    reply[#reply + 1] = found[i]
    reply[#reply + 1] = heartbeat
    reply[#reply + 1] = digits_of(ends - now)
  end
end
return reply
