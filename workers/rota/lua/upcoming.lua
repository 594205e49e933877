#!lua flags=allow-oom
-- The schedules that have an occurrence soon, and those that nobody has reckoned yet.
-- with: prefix clock numbers
-- KEYS[1]  tasks
-- ARGV
--   ahead  us
--   most   how many to return
-- keys     schedules schedules-due tasks
-- returns  now, (name, record)...
-- A name without a record is forgotten: nobody could ever deal with it.
-- Invariant: nothing but names without a record is changed.
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
