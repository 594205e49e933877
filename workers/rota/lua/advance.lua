#!lua
-- Enqueue the next occurrences of a schedule, a little ahead of their time, and set what follows. A full server refuses
-- it, as it does an enqueue.
-- with: prefix clock numbers entry doorbell books in_use former bare news schedules occurrences
-- KEYS[1]  tasks
-- ARGV
--   name           of the schedule
--   read           its record as it was read
--   becomes        its record from now on
--   look_at        when it is next to be looked at (us | '+inf')
--   rule           'skip' | 'queue' for what overlaps
--   queue          of the occurrences
--   id, due, body  up to 100 x; due in us
-- keys     counts dead delayed doorbell doorbell:* epitaphs events events-on former idle keys members patterns paused
--          progress queue:* queues ready schedules schedules-alive schedules-declared schedules-due served tasks
--          tickets times:* totals turns:* waiters
-- returns  1, or 0 when the record is no longer the one that was read: then nothing was done
-- Invariant: of any number of pollers that read the same record one enqueues its occurrences, and none does twice.
local FIELDS, MOST, FIRST = 3, 100, 7
local name, read, becomes, look_at, rule, queue = unpack(ARGV, 1, FIRST - 1)
local now = redis_now()
if #ARGV >= FIRST + MOST * FIELDS then return redis.error_reply('ROTA at most 100 occurrences a call') end
if not queue_or_nil(queue) then return redis.error_reply('ROTA not a queue: ' .. string.sub(queue, 1, 200)) end
for at = FIRST, #ARGV, FIELDS do
  if not name_or_nil(ARGV[at]) or not whole(ARGV[at + 1]) then
    return redis.error_reply('ROTA not an occurrence: ' .. string.sub(ARGV[at], 1, 200))
  end
end
guard_schedules()
guard_places()
redis.call('SCARD', PREFIX .. 'queues')
if redis.call('HGET', SCHEDULES, name) ~= read then return 0 end

note_overlap(name, rule)
for at = FIRST, #ARGV, FIELDS do
  local id, due, body = unpack(ARGV, at, at + 2)
  put_occurrence(id, queue, whole(due), body, now)
end
redis.call('HSET', SCHEDULES, name, becomes)
redis.call('ZADD', SCHEDULES_DUE, look_at, name)
return 1
