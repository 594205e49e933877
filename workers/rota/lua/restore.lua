#!lua flags=allow-oom
-- Put back live tasks that are in no lane, list or set, because something outside Rota deleted their entries.
-- with: prefix clock entry ticket lists locations doorbell counters in_use incarnations legacy_item task_events waiters
-- with: other_ends following adopt
-- KEYS[1]  tasks
-- ARGV
--   id  id of a task that was found in no lane; up to 500
-- keys     counts dead delayed doorbell doorbell:* ends ends-sealed ends-untold ends:* epitaphs events events-on former
--          group-members:* group:* groups idle inflight:* keys members meta owners patterns paused progress queue:*
--          queues ready replies:* result:* served tasks tickets times:* totals turns:* unique:* waiters
-- returns  a status per id: restored | ended (it was cancelled while it waited) | dead (its queue is unknown, or its
--          lane is not a list) | placed (it has ended, or is in a lane, list or set; nothing was changed)
-- Invariant: no task runs twice because of this script. The new entry has a higher incarnation than all others of its
-- id and is pushed to the tail. If a lane holds an older entry after all, a claim finds that entry first and drops it
-- as a tombstone (see shared/incarnations.lua).
local UNKNOWN_QUEUE = 'unknown'
local UNPLACED = '{"reason":"unplaced",'
  .. '"error":"it was in no lane, list or set, and its body does not name its queue: enqueue it again"}'
local now = redis_now()
guard_task_keys()
redis.call('HLEN', FORMER)
redis.call('SCARD', PREFIX .. 'queues')

local statuses, unplaced = {}, {}
for _, id in ipairs(in_lane_or_nowhere(ARGV, held_ids())) do unplaced[id] = true end

-- Return a new entry with the next incarnation. Its counters come from the ticket, if there is one.
local function next_incarnation(id, body)
  local is_name = name_or_nil(id) -- another program may have stored a body under any field
  local ticket = is_name and parse_ticket(id, redis.call('HGET', PREFIX .. 'tickets', id))
  local _, queue = item_names(is_name and body or '')
  local incarnation, tombstones = incarnation_of(id)
  incarnation = (incarnation or 0) + 1
  local e = rebuilt_entry(id, ticket and ticket.queue or queue or UNKNOWN_QUEUE, 'i', now, incarnation, now)
  redis.call('HSET', FORMER, id, string.format('%.0f %.0f', incarnation, tombstones or 0))
  if ticket then
    e.failures, e.crashes, e.losses, e.releases = ticket.failures, ticket.crashes, ticket.losses, ticket.releases
    redis.call('HDEL', PREFIX .. 'tickets', id)
    count('delayed:' .. e.queue, -1)
  end
  return e
end

local function put_back(id, body)
  if body == '' then
    -- The real flag is lost, so assume one with every possible part. The end was recorded when the task was cancelled.
    remove_ended(id, 'u1X', 'cancelled')
    if follow then follow('cancelled', now, { id }) end -- in case the task was running when it was cancelled
    return 'ended'
  end
  local e = next_incarnation(id, body)
  if e.queue == UNKNOWN_QUEUE or not is_list(ready_lane(e.queue)) then
    bury(e, e.queue == UNKNOWN_QUEUE and UNPLACED or UNUSABLE, now)
    redis.call('SADD', PREFIX .. 'queues', e.queue) -- otherwise no listing would show the queue's dead tasks
    return 'dead'
  end
  put(e)
  redis.call('SADD', PREFIX .. 'queues', e.queue)
  ring_if_served(e.queue)
  if report then report('restored', entry_text(e)) end
  return 'restored'
end

for i, id in ipairs(ARGV) do
  local body = unplaced[id] and redis.call('HGET', KEYS[1], id)
  unplaced[id] = nil -- an id that is given twice is put back once
  statuses[i] = body and put_back(id, body) or 'placed'
end
return statuses
