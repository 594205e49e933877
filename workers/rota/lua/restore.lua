#!lua flags=allow-oom
-- Put back tasks that live and stand nowhere, as somebody took their entry away.
-- with: prefix clock entry ticket lists places doorbell books in_use former bare news waiters otherwise following adopt
-- KEYS[1]  tasks
-- ARGV
--   id  up to 500, of tasks that were found in no lane
-- keys     counts dead delayed doorbell doorbell:* ends ends-sealed ends-untold ends:* epitaphs events events-on former
--          group-members:* group:* groups idle inflight:* keys members meta owners patterns paused progress queue:*
--          queues ready replies:* result:* served tasks tickets times:* totals turns:* unique:* waiters
-- returns  a word each: restored | ended (it was cancelled while it waited) | dead (nothing says what its queue is, or
--          its lane is no list) | placed (it has ended, or stands somewhere: nothing was done)
-- Invariant: nothing runs twice for it. The new entry has a life number above that of any other of its id, and stands
-- at the tail: if a lane has one after all, that is met first, and is a shell (see shared/former.lua).
local UNKNOWN_QUEUE = 'unknown'
local UNPLACED = '{"reason":"unplaced",'
  .. '"error":"it stood nowhere, and its body does not name its queue: enqueue it again"}'
local now = redis_now()
guard_places()
redis.call('HLEN', FORMER)
redis.call('SCARD', PREFIX .. 'queues')

local words, unplaced = {}, {}
for _, id in ipairs(in_lane_or_nowhere(ARGV, held_ids())) do unplaced[id] = true end

-- The entry of its next life; its counters are in its ticket, if that is left.
local function next_life(id, body)
  local is_name = name_or_nil(id) -- who shares the server may have put a body under anything
  local ticket = is_name and parse_ticket(id, redis.call('HGET', PREFIX .. 'tickets', id))
  local _, queue = bare_names(is_name and body or '')
  local life, shells = lives_of(id)
  life = (life or 0) + 1
  local e = entry_anew(id, ticket and ticket.queue or queue or UNKNOWN_QUEUE, 'i', now, life, now)
  redis.call('HSET', FORMER, id, string.format('%.0f %.0f', life, shells or 0))
  if ticket then
    e.failures, e.crashes, e.losses, e.releases = ticket.failures, ticket.crashes, ticket.losses, ticket.releases
    redis.call('HDEL', PREFIX .. 'tickets', id)
    count('delayed:' .. e.queue, -1)
  end
  return e
end

local function put_back(id, body)
  if body == '' then
    take_off(id, 'u1X', 'cancelled') -- all that it may hold; its end was noted when it was cancelled
    if follow then follow('cancelled', now, { id }) end -- unless it ran then
    return 'ended'
  end
  local e = next_life(id, body)
  if e.queue == UNKNOWN_QUEUE or not is_list(ready_lane(e.queue)) then
    bury(e, e.queue == UNKNOWN_QUEUE and UNPLACED or UNUSABLE, now)
    redis.call('SADD', PREFIX .. 'queues', e.queue) -- or nobody would be shown its dead
    return 'dead'
  end
  put(e)
  redis.call('SADD', PREFIX .. 'queues', e.queue)
  ring_if_served(e.queue)
  if tell then tell('restored', entry_text(e)) end
  return 'restored'
end

for i, id in ipairs(ARGV) do
  local body = unplaced[id] and redis.call('HGET', KEYS[1], id)
  unplaced[id] = nil -- an id given twice is put back once
  words[i] = body and put_back(id, body) or 'placed'
end
return words
