#!lua flags=no-writes
-- The consumers: owners that are programs of their own, outside of every fleet.
-- with: prefix clock numbers doorbell
-- KEYS[1]  tasks
-- keys     consumers doorbell doorbell:* events-on former idle inflight:* members owners patterns paused progress
--          queue:* served tasks times:* turns:* waiters
-- returns  how many there are, then a row for at most 500 of them: owner, us that its lease has left, tasks held,
--          its queues in one text
local MOST = 500
local now = redis_now()
local found = redis.pcall('HGETALL', PREFIX .. 'consumers')
if found.err then found = {} end -- of another type it stops nothing
local answer = { #found / 2 }
for i = 1, math.min(#found, 2 * MOST), 2 do
  local expires = whole(redis.call('ZSCORE', PREFIX .. 'owners', found[i])) or now
  local held = length(PREFIX .. 'inflight:' .. found[i])
  answer[#answer + 1] = { found[i], math.max(0, expires - now), held, found[i + 1] }
end
return answer
