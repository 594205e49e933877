#!lua flags=no-writes
-- The consumers: owners that are programs of their own, outside of every fleet.
-- with: prefix clock numbers doorbell
-- KEYS[1]  tasks
-- returns  how many there are, then a row for at most 500 of them: owner, us that its lease has left, tasks held,
--          its queues in one text
local MOST = 500
local now = redis_now()
local total = redis.pcall('HLEN', PREFIX .. 'consumers')
if type(total) ~= 'number' then return { 0 } end
local found = redis.call('HRANDFIELD', PREFIX .. 'consumers', MOST, 'WITHVALUES')
local answer = { total }
for i = 1, #found, 2 do
  local expires = whole(redis.call('ZSCORE', PREFIX .. 'owners', found[i])) or now
  local held = length(PREFIX .. 'inflight:' .. found[i])
  answer[#answer + 1] = { found[i], math.max(0, expires - now), held, found[i + 1] }
end
return answer
