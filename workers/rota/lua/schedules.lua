#!lua flags=no-writes
-- Return a page of the schedules, the next due first, or the schedules with the given names.
-- with: prefix clock
-- KEYS[1]  tasks
-- ARGV
--   offset  number of schedules to skip
--   number  number of schedules to return, up to 500
--   names   names of the schedules to return; if there are any, `offset` and `number` are ignored
-- keys     schedules schedules-due tasks
-- returns  now in microseconds, the total number of schedules, and a flat list with name and record of each schedule
--          that was found
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
