#!lua
-- Enqueue the next occurrences of a schedule, a little ahead of their time, and set what follows. A full server refuses
-- it, as it does an enqueue.
-- with: prefix clock numbers entry doorbell books in_use former bare news schedules occurrences
-- KEYS[1]  tasks
-- ARGV     name, its record as it was read, its record from now on, when it is next to be looked at (us | '+inf'),
--          'skip' | 'queue' for what overlaps, queue, then up to 100 x: id, due us, body
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

local first = redis.call('ZRANGE', PREFIX .. 'delayed', 0, 0, 'WITHSCORES')
local waiting_for = first[1] and from_score(first[2]) or math.huge
note_overlap(name, rule)
for at = FIRST, #ARGV, FIELDS do
  local due = whole(ARGV[at + 1])
  if put_occurrence(ARGV[at], queue, due, ARGV[at + 2], now) and due < waiting_for then
    waiting_for = due
    ring_pollers()
  end
end
redis.call('HSET', SCHEDULES, name, becomes)
redis.call('ZADD', SCHEDULES_DUE, look_at, name)
return 1
