#!lua
-- Enqueue an extra occurrence of a schedule, due now. The occurrence goes into `delayed`, and a poller is woken to
-- promote it. A server that is out of memory refuses this script, just as it refuses `enqueue`.
-- with: prefix clock numbers entry lists doorbell counters in_use incarnations legacy_item task_events schedules
-- with: occurrences overlap remembered
-- KEYS[1]  tasks
-- ARGV
--   name             name of the schedule
--   read             record of the schedule as the caller read it
--   rule             'skip' | 'queue': what to do with occurrences that overlap
--   id, queue, body  the occurrence
-- keys     counts dead delayed doorbell doorbell:* ends ends-sealed ends-untold ends:* epitaphs events events-on former
--          idle inflight:* keys members owners patterns paused progress queue:* queues ready schedules schedules-alive
--          schedules-declared schedules-due served tasks tickets times:* totals turns:* waiters
-- errors   ROTA… if the id or the queue is not valid; nothing was changed
-- returns  ok (also if nothing was enqueued because a task with the id is alive or remembered) | changed (the stored
--          record is no longer `read`) | overlaps ID (the occurrence ID has not ended)
-- A repeated call with the same id enqueues nothing while the task is alive or its end is remembered.
-- Invariant: an id is not enqueued again while a task with that id is alive or remembered.
local name, read, rule, id, queue, body = unpack(ARGV, 1, 6)
local now = redis_now()
if not name_or_nil(id) or not queue_or_nil(queue) then
  return redis.error_reply('ROTA not a name: ' .. string.sub(id .. ' in ' .. queue, 1, 200))
end
guard_schedules()
guard_task_keys()
redis.call('SCARD', PREFIX .. 'queues')
if redis.call('HEXISTS', KEYS[1], id) == 1 or record_of(id, 0) then return 'ok' end
if redis.call('HGET', SCHEDULES, name) ~= read then return 'changed' end
note_overlap(name, rule)
local other = rule == 'skip' and overlapped_by(name, id)
if other then return 'overlaps ' .. other end
put_occurrence(id, queue, now, body, now)
ring_pollers()
return 'ok'
