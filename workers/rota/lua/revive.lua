#!lua
-- Put dead tasks back into their lanes as if they were enqueued now, with failures, crashes and losses reset to 0. A
-- server that is out of memory refuses this script, just as it refuses `enqueue`.
-- with: prefix clock entry ticket doorbell counters legacy_item in_use task_events place
-- KEYS[1]  tasks
-- ARGV
--   id  id of a dead task; up to 500
-- keys     counts dead delayed doorbell doorbell:* epitaphs events events-on former idle keys members patterns paused
--          progress queue:* queues ready served tasks tickets times:* totals turns:* waiters
-- returns  the number of tasks that were dead
-- Invariant: a task leaves the dead set and enters its lane in one call, with an entry that has never existed before.
local now = redis_now()
guard_task_keys()
local entries = {}
for _, id in ipairs(ARGV) do
  local e = parse_ticket(id, redis.call('HGET', PREFIX .. 'tickets', id))
  if e and redis.call('ZSCORE', PREFIX .. 'dead', id) then
    redis.call('LLEN', ready_lane(e.queue))
    entries[#entries + 1] = e
  end
end
local revived = 0
for _, e in ipairs(entries) do
  if redis.call('ZREM', PREFIX .. 'dead', e.id) == 1 then -- an id that is given twice is revived once
    redis.call('HDEL', PREFIX .. 'tickets', e.id)
    redis.call('HDEL', PREFIX .. 'epitaphs', e.id)
    count('dead:' .. e.queue, -1)
    e.kind, e.due, e.ready, e.releases = 'i', now, now, e.releases + 1
    e.failures, e.crashes, e.losses = 0, 0, 0
    put(e)
    ring(e.queue)
    if report then report('revived', entry_text(e)) end
    revived = revived + 1
  end
end
return revived
