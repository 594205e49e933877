#!lua
-- Enqueue the next occurrences of a schedule a few seconds before they are due, and store the schedule's new record. A
-- server that is out of memory refuses this script, just as it refuses `enqueue`.
-- with: prefix clock numbers entry doorbell counters in_use incarnations legacy_item task_events schedules occurrences
-- KEYS[1]  tasks
-- ARGV
--   name           name of the schedule
--   read           record of the schedule as the poller read it
--   becomes        record to store instead
--   check_at       time in microseconds at which a poller has to process the schedule again, or '+inf'
--   rule           'skip' | 'queue': what `promote` does with an occurrence if an earlier one has not ended
--   queue          queue of the occurrences
--   id, due, body  occurrence, with its due time in microseconds; up to 100 x
-- keys     counts dead delayed doorbell doorbell:* epitaphs events events-on former idle keys members patterns paused
--          progress queue:* queues ready schedules schedules-alive schedules-declared schedules-due served tasks
--          tickets times:* totals turns:* waiters
-- errors   ROTA… if there are more than 100 occurrences, or if an occurrence or the queue is not valid; nothing was
--          changed
-- returns  1, or 0 if the stored record is no longer `read`; in that case nothing was changed
-- Invariant: if several pollers read the same record, exactly one of them enqueues its occurrences, and does so once.
local FIELDS, MOST, FIRST = 3, 100, 7
local name, read, becomes, check_at, rule, queue = unpack(ARGV, 1, FIRST - 1)
local now = redis_now()
if #ARGV >= FIRST + MOST * FIELDS then return redis.error_reply('ROTA at most 100 occurrences a call') end
if not queue_or_nil(queue) then return redis.error_reply('ROTA not a queue: ' .. string.sub(queue, 1, 200)) end
for at = FIRST, #ARGV, FIELDS do
  if not name_or_nil(ARGV[at]) or not whole(ARGV[at + 1]) then
    return redis.error_reply('ROTA not an occurrence: ' .. string.sub(ARGV[at], 1, 200))
  end
end
guard_schedules()
guard_task_keys()
redis.call('SCARD', PREFIX .. 'queues')
if redis.call('HGET', SCHEDULES, name) ~= read then return 0 end

note_overlap(name, rule)
for at = FIRST, #ARGV, FIELDS do
  local id, due, body = unpack(ARGV, at, at + 2)
  put_occurrence(id, queue, whole(due), body, now)
end
redis.call('HSET', SCHEDULES, name, becomes)
redis.call('ZADD', SCHEDULES_DUE, check_at, name)
return 1
