#!lua flags=no-writes
-- Return the consumers, which are owners that belong to the application and not to a fleet.
-- with: prefix clock numbers doorbell
-- KEYS[1]  tasks
-- keys     consumers doorbell doorbell:* events-on former idle inflight:* members owners patterns paused progress
--          queue:* served tasks times:* turns:* waiters
-- returns  the number of consumers, then a row for at most 500 of them: owner, microseconds until its lease expires,
--          number of tasks held, and its queues separated by spaces
local MOST = 500
local now = redis_now()
local found = redis.pcall('HGETALL', PREFIX .. 'consumers')
if found.err then found = {} end -- a key of the wrong type counts as empty
local reply = { #found / 2 }
for i = 1, math.min(#found, 2 * MOST), 2 do
  local expires = whole(redis.call('ZSCORE', PREFIX .. 'owners', found[i])) or now
  local held = length(PREFIX .. 'inflight:' .. found[i])
  reply[#reply + 1] = { found[i], math.max(0, expires - now), held, found[i + 1] }
end
return reply
