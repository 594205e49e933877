#!lua flags=allow-oom
-- Turn legacy items of the delayed set into tasks before they are due, so that they can be counted, listed and
-- cancelled like any other task. A legacy item is a JSON array that another program added with ZADD.
-- with: prefix clock entry ticket doorbell counters in_use incarnations legacy_item task_events waiters other_ends
-- with: following
-- with: adopt
-- KEYS[1]  tasks
-- ARGV
--   member  member of the delayed set; up to 500
-- keys     counts dead delayed doorbell doorbell:* ends ends-sealed ends-untold ends:* epitaphs events events-on former
--          group-members:* group:* groups idle keys members meta patterns paused progress queue:* queues ready
--          replies:* result:* served tasks tickets times:* totals turns:* unique:* waiters
-- returns  the number of adopted tasks, then (queue, reason) for each item that went straight to the dead set
-- Invariant: a member that is still in the delayed set becomes a task with the same score, or goes to the dead set
-- unchanged.
local UNKNOWN_QUEUE, LONGEST_WAIT = 'unknown', 3653 * 86400 * 1000000 -- ten years
local DEATH_RECORDS = {
  garbage = '{"reason":"garbage","error":"not a task: no queue could be read from this member of the delayed set"}',
  too_far_ahead = '{"reason":"too_far_ahead","error":"due in more than ten years: is its score in milliseconds? '
    .. 'A score is Unix time in seconds"}',
}
local now, delayed = redis_now(), PREFIX .. 'delayed'
guard_task_keys()
redis.call('SCARD', PREFIX .. 'queues')

local function fault_in(queue, due)
  if not queue then return 'garbage' end
  return due > now + LONGEST_WAIT and 'too_far_ahead' or nil
end

local taken, dead = 0, {}
local function take(member, score)
  local id, queue = item_names(member)
  local due = from_score(score)
  local reason = fault_in(queue, due)
  redis.call('ZREM', delayed, member)
  local e = adopt(member, id, queue or UNKNOWN_QUEUE, 'd', due, now)
  redis.call('SADD', PREFIX .. 'queues', e.queue)
  if reason then
    bury(e, DEATH_RECORDS[reason], now)
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
  -- If the member is a valid name, it is the id of a task and not a legacy item.
  if score and not name_or_nil(member) then take(member, score) end
end
return { taken, dead }
