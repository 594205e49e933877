#!lua flags=no-writes
-- The numbers of queues, for gauges and people.
-- with: prefix clock numbers entry doorbell untold condition shares closing
-- KEYS[1]  tasks
-- ARGV     queues to name whether or not they were ever pushed to
-- returns  now, owners, then a row a queue: queue, ready, scheduled, overdue, in flight, dead, accepted,
--          age us of the oldest ready, age us of the longest overdue, paused 0|1, served 0|1, for how many us it has been
--          closed with entries that wait (0: it is not), the condition that keeps it closed or '', what is wrong with that
-- At most 500 queues, and at most 500 overdue tasks are told apart by queue. What other languages scheduled counts as
-- scheduled in the queue `unknown` until it is adopted.
local MOST, UNKNOWN_QUEUE = 500, 'unknown'
local now = redis_now()
local names, known = {}, {}
local function name(queue)
  if not known[queue] and #names < MOST then
    known[queue] = true
    names[#names + 1] = queue
  end
end
local bare = untold()
for _, queue in ipairs(ARGV) do name(queue) end
if bare > 0 then name(UNKNOWN_QUEUE) end
for _, queue in ipairs(redis.call('SMEMBERS', PREFIX .. 'queues')) do name(queue) end

local overdue, oldest = {}, {}
local due = redis.call('ZRANGEBYSCORE', PREFIX .. 'delayed', '-inf', to_score(now), 'WITHSCORES', 'LIMIT', 0, MOST)
for i = 1, #due, 2 do
  local e = parse_ticket(due[i], redis.call('HGET', PREFIX .. 'tickets', due[i]))
  if e then
    overdue[e.queue] = (overdue[e.queue] or 0) + 1
    oldest[e.queue] = oldest[e.queue] or math.max(0, now - from_score(due[i + 1]))
  end
end

local function head_age(lane)
  local head = redis.pcall('LINDEX', lane, 0)
  local e = type(head) == 'string' and parse_entry(head)
  return e and math.max(0, now - e.ready) or 0
end
local function number_of(key, field) return whole_or_zero(redis.call('HGET', PREFIX .. key, field)) end

local function closing(queue)
  local name, fault = closed_by(queue, now)
  local since = name and closed_since(queue)
  return since and math.max(0, now - since) or 0, name or '', fault or ''
end

local answer = { now, redis.call('ZCARD', PREFIX .. 'owners') }
for _, queue in ipairs(names) do
  local closed_us, condition, fault = closing(queue)
  answer[#answer + 1] = {
    queue,
    entries_in(queue),
    number_of('counts', 'delayed:' .. queue) + (queue == UNKNOWN_QUEUE and bare or 0),
    overdue[queue] or 0,
    number_of('counts', 'running:' .. queue),
    number_of('counts', 'dead:' .. queue),
    number_of('totals', 'accepted:' .. queue),
    math.max(head_age(ready_lane(queue)), head_age(delayed_lane(queue))),
    oldest[queue] or 0,
    redis.call('SISMEMBER', PREFIX .. 'paused', queue),
    number_of('served', queue) > now and 1 or 0,
    closed_us,
    condition,
    fault,
  }
end
return answer
