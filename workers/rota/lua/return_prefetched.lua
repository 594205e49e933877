#!lua flags=allow-oom
-- Return prefetched tasks while a worker runs a long task. The tasks that the worker finished before the running task
-- are settled. The tasks after it, which have not started, are put back at the head of their lanes, in order. This does
-- not count as an attempt.
-- with: prefix clock entry start_mark doorbell counters in_use incarnations legacy_item task_events waiters other_ends
-- with: following
-- with: settle tiers rotation
-- KEYS[1]  tasks
-- ARGV
--   owner                       owner name of the worker
--   running                     entry of the running task
--   settlements                 number of outcomes that follow
--   entry, verb, first, second  outcome of a finished task, see rota/protocol/outcome.py; `settlements` x
--   domains                     the tiers, see shared/tiers.lua
-- keys     counts dead delayed doorbell doorbell:* ends ends-sealed ends-untold ends:* epitaphs events events-on former
--          group-members:* group:* groups idle inflight:* keys members meta patterns paused progress queue:* queues
--          ready replies:* result:* rotation served tasks tickets times:* totals turns:* unique:* waiters
-- returns  the number of entries after the running entry that left the list. Most were given back. Cancelled ones have
--          ended. An entry that is marked as started (see mark_started.lua), or whose lane is not a list, is dead
-- Invariant: apart from settled entries, only entries after the running entry leave the list. Nothing is given back if
-- the running entry is no longer in the list, or if an item after it is not an entry.
local now = redis_now()
local owner, running = ARGV[1], ARGV[2]
local inflight = PREFIX .. 'inflight:' .. owner
local settlements, settlements_at = tonumber(ARGV[3]), 4
local domains = read_tiers(settlements_at + settlements * 4)

-- Checks that may raise an error come before the first write.
guard_task_keys()
guard_rotation(domains)
redis.call('LLEN', inflight)

local _, settled, released = settle({ owner = owner, now = now, at = settlements_at, n = settlements })
for queue, ended in pairs(settled) do
  count('running:' .. queue, -ended)
  credit(share_of(domains, queue), released[queue] or 0)
  ring_if_served(queue)
end

-- The worker may have marked the running entry as started after it had published the entry.
local position = redis.call('LPOS', inflight, running) or redis.call('LPOS', inflight, marked_text(running))
if not position then return 0 end

local entries = {}
for i, text in ipairs(redis.call('LRANGE', inflight, position + 1, -1)) do
  entries[i] = parse_entry(text)
  if not entries[i] then return 0 end -- no script wrote this item; `reap` will set it aside
end

redis.call('LTRIM', inflight, 0, position)
local by_queue = {}
for i = #entries, 1, -1 do
  local e = entries[i]
  by_queue[e.queue] = (by_queue[e.queue] or 0) + 1
  local is_superseded = is_tombstone(e.id, e.flag, true)
  if not is_superseded and redis.call('HGET', PREFIX .. 'tasks', e.id) == '' then
    end_task(e, 'cancelled', now, owner, NO_RUN .. '-')
  elseif not is_superseded then
    e.releases = e.releases + 1
    if give_back(e, now) and report then report('released', entry_text(e), owner) end
  end
end
for queue, given_back in pairs(by_queue) do
  count('running:' .. queue, -given_back)
  credit(share_of(domains, queue), given_back)
  ring_if_served(queue)
end
return #entries
