#!lua flags=no-writes
-- Schedules for people: a page of all, those first that are due next, or those of these names.
-- with: prefix clock
-- KEYS[1]  tasks
-- ARGV
--   offset  how many to pass over
--   number  how many to return, up to 500
--   names   to return these instead
-- keys     schedules schedules-due tasks
-- returns  now, how many there are, (name, record)... of those that are there
local now, due = redis_now(), PREFIX .. 'schedules-due'
local offset, number = tonumber(ARGV[1]), math.min(500, tonumber(ARGV[2]))
local names = {}
for i = 3, #ARGV do names[i - 2] = ARGV[i] end
if #names == 0 and number > 0 then names = redis.call('ZRANGE', due, offset, offset + number - 1) end
local records = #names > 0 and redis.call('HMGET', PREFIX .. 'schedules', unpack(names)) or {}
local found = {}
for i, name in ipairs(names) do
  if records[i] then
    found[#found + 1] = name
    found[#found + 1] = records[i]
  end
end
return { now, redis.call('ZCARD', due), found }
