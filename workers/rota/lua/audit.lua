#!lua flags=no-writes
-- Return the counters that must balance, because every accepted task is either live or has ended.
-- with: prefix numbers
-- KEYS[1]  tasks
-- ARGV
--   ends  outcomes after which a task is no longer stored, for example `done`
-- keys     tasks totals
-- returns  numbers of tasks: accepted; live, including dead tasks; and ended, one number for each outcome in `ends`
local ends, accepted = ARGV, 0
local totals = redis.call('HGETALL', PREFIX .. 'totals')
for i = 1, #totals, 2 do
  if string.match(totals[i], '^accepted:') then accepted = accepted + whole_or_zero(totals[i + 1]) end
end
local reply = { accepted, redis.call('HLEN', PREFIX .. 'tasks') }
for i, how in ipairs(ends) do reply[2 + i] = whole_or_zero(redis.call('HGET', PREFIX .. 'totals', how)) end
return reply
