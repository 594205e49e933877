#!lua flags=no-writes
-- Return the counters that must balance: accepted = done + cancelled + expired + purged + live.
-- with: prefix numbers
-- KEYS[1]  tasks
-- keys     tasks totals
-- returns  six numbers of tasks: accepted, done, cancelled, expired, purged, and live, which includes dead tasks
local sums = { accepted = 0, done = 0, cancelled = 0, expired = 0, purged = 0 }
local totals = redis.call('HGETALL', PREFIX .. 'totals')
for i = 1, #totals, 2 do
  local name = string.match(totals[i], '^accepted:') and 'accepted' or totals[i]
  if sums[name] then sums[name] = sums[name] + whole_or_zero(totals[i + 1]) end
end
return { sums.accepted, sums.done, sums.cancelled, sums.expired, sums.purged, redis.call('HLEN', PREFIX .. 'tasks') }
