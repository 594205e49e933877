#!lua flags=allow-oom
-- Adopt bare items of the delayed set before they are due, so that they are counted, shown and cancelled as any other
-- task.
-- with: prefix clock entry ticket doorbell books in_use former bare news waiters otherwise following adopt
-- KEYS[1]  tasks
-- ARGV
--   member  up to 500
-- keys     counts dead delayed doorbell doorbell:* ends ends-sealed ends-untold ends:* epitaphs events events-on former
--          group-members:* group:* groups idle keys members meta patterns paused progress queue:* queues ready
--          replies:* result:* served tasks tickets times:* totals turns:* unique:* waiters
-- returns  how many were adopted, then the queue and the reason of each that is dead at once
-- Invariant: a member becomes a task with the same score, or is dead with its bytes, or is gone meanwhile.
local UNKNOWN_QUEUE, LONGEST_WAIT = 'unknown', 3653 * 86400 * 1000000 -- ten years
local EPITAPHS = {
  garbage = '{"reason":"garbage","error":"not a task: no queue could be read from this member of the delayed set"}',
  too_far_ahead = '{"reason":"too_far_ahead","error":"due in more than ten years: is its score in milliseconds? '
    .. 'A score is Unix time in seconds"}',
}
local now, delayed = redis_now(), PREFIX .. 'delayed'
guard_places()
redis.call('SCARD', PREFIX .. 'queues')

local function fault_in(queue, due)
  if not queue then return 'garbage' end
  return due > now + LONGEST_WAIT and 'too_far_ahead' or nil
end

local taken, dead = 0, {}
local function take(member, score)
  local id, queue = bare_names(member)
  local due = from_score(score)
  local reason = fault_in(queue, due)
  redis.call('ZREM', delayed, member)
  local e = adopt(member, id, queue or UNKNOWN_QUEUE, 'd', due, now)
  redis.call('SADD', PREFIX .. 'queues', e.queue)
  if reason then
    bury(e, EPITAPHS[reason], now)
    dead[#dead + 1] = e.queue
    dead[#dead + 1] = reason
  else
    redis.call('HSET', PREFIX .. 'tickets', e.id, ticket_text(e))
    redis.call('ZADD', delayed, score, e.id)
    count('delayed:' .. e.queue, 1)
    taken = taken + 1
  end
end

for _, member in ipairs(ARGV) do
  local score = redis.call('ZSCORE', delayed, member)
  if score and not name_or_nil(member) then take(member, score) end -- a name is the id of a task
end
return { taken, dead }
