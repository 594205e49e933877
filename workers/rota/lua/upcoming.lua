#!lua flags=allow-oom
-- Return the schedules that have an occurrence soon, and the schedules whose next occurrence has not been computed yet.
-- with: prefix clock numbers
-- KEYS[1]  tasks
-- ARGV
--   ahead  how far ahead to search, in microseconds
--   most   maximum number of schedules to return
-- keys     schedules schedules-due tasks
-- returns  now in microseconds, then (name, record) for each schedule
-- A name without a record is deleted, because no poller could process it.
-- Invariant: nothing is changed except that such names are deleted.
local now, due = redis_now(), PREFIX .. 'schedules-due'
local ahead, most = tonumber(ARGV[1]), tonumber(ARGV[2])
local names = redis.call('ZRANGEBYSCORE', due, '-inf', digits_of(now + ahead), 'LIMIT', 0, most)
local records = #names > 0 and redis.call('HMGET', PREFIX .. 'schedules', unpack(names)) or {}
local found = {}
for i, name in ipairs(names) do
  if records[i] then
    found[#found + 1] = name
    found[#found + 1] = records[i]
  else
    redis.call('ZREM', due, name)
  end
end
return { now, found }
