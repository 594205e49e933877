#!lua flags=no-writes
-- Return the numbers of tasks of each named queue and of a batch of the known queues. The numbers are used for metrics,
-- and are shown to people.
-- with: prefix clock numbers entry ticket doorbell unadopted matching closing
-- KEYS[1]  tasks
-- ARGV
--   cursor  '0' in the first call, then the cursor of the last reply
--   queue   queue to report even if it is not known; up to 500
-- keys     closed conditions counts dead delayed doorbell doorbell:* events-on former idle members owners patterns
--          paused progress queue:* queues served shares tasks tickets times:* totals turns:* waiters
-- returns  now in microseconds, the number of owners, the next cursor ('0' after the last batch); then a row per queue:
--     queue, ready, scheduled, overdue, in flight, dead, accepted
--     age in microseconds of the oldest ready task and of the longest overdue task
--     0|1 paused, 0|1 served
--     for how many microseconds the queue has been closed with entries waiting (0 if it is open)
--     the condition that closes it or '', the error of the condition or ''
-- At most 500 named queues are reported. Only the 500 tasks that were due first count as overdue. Legacy items in the
-- delayed set count as scheduled in the queue `unknown` until they are adopted.
local MOST, CHUNK, UNKNOWN_QUEUE = 500, 100, 'unknown'
local now = redis_now()
local names, known = {}, {}
local function name(queue)
  if not known[queue] then
    known[queue] = true
    names[#names + 1] = queue
  end
end
local legacy_items = unadopted_items()
local cursor = ARGV[1]
for i = 2, math.min(#ARGV, MOST + 1) do name(ARGV[i]) end
if legacy_items > 0 and cursor == '0' then name(UNKNOWN_QUEUE) end
local chunk = redis.call('SSCAN', PREFIX .. 'queues', cursor, 'COUNT', CHUNK)
for _, queue in ipairs(chunk[2]) do name(queue) end

local reply = { now, redis.call('ZCARD', PREFIX .. 'owners'), chunk[1] }
if #names == 0 then return reply end

local overdue, oldest = {}, {}
local all_due = redis.call('ZRANGEBYSCORE', PREFIX .. 'delayed', '-inf', to_score(now), 'WITHSCORES', 'LIMIT', 0, MOST)
for i = 1, #all_due, 2 do
  local e = parse_ticket(all_due[i], redis.call('HGET', PREFIX .. 'tickets', all_due[i]))
  if e then
    overdue[e.queue] = (overdue[e.queue] or 0) + 1
    oldest[e.queue] = oldest[e.queue] or math.max(0, now - from_score(all_due[i + 1]))
  end
end

-- Read the counters of all queues with one command. With 10,000 queues, one command per queue would take most of the
-- time.
local function values(command, key, prefix)
  local fields = {}
  for i, queue in ipairs(names) do fields[i] = prefix .. queue end
  return redis.call(command, key, unpack(fields))
end
local counts, totals = PREFIX .. 'counts', PREFIX .. 'totals'
local delayed, running = values('HMGET', counts, 'delayed:'), values('HMGET', counts, 'running:')
local dead, accepted = values('HMGET', counts, 'dead:'), values('HMGET', totals, 'accepted:')
local paused = values('SMISMEMBER', PREFIX .. 'paused', '')

-- The names and patterns that are served now. The patterns are in the form of a settings text, which `served_as` takes.
local served, patterns, all = {}, '', redis.call('HGETALL', PREFIX .. 'served')
for i = 1, #all, 2 do
  local is_now = whole_or_zero(all[i + 1]) > now
  served[all[i]] = is_now
  if is_now and is_pattern(all[i]) then patterns = patterns .. ' ' .. all[i] .. '=+' end
end

-- Return the number of entries in a lane, and for how long its first entry has been ready.
local function inspect_lane(lane)
  local entries = length(lane)
  local e = entries > 0 and parse_entry(redis.call('LINDEX', lane, 0))
  return entries, e and math.max(0, now - e.ready) or 0
end

local any_conditions = redis.call('EXISTS', CONDITIONS) == 1
local function closing(queue, is_paused)
  if not any_conditions and not is_paused then return 0, '', '' end
  local name, fault = closed_by(queue, now)
  local since = name and closed_since(queue)
  return since and math.max(0, now - since) or 0, name or '', fault or ''
end

for i, queue in ipairs(names) do
  local closed_us, condition, fault = closing(queue, paused[i] == 1)
  local ready, age = inspect_lane(ready_lane(queue))
  local due, due_age = inspect_lane(delayed_lane(queue))
  reply[#reply + 1] = {
    queue,
    ready + due,
    whole_or_zero(delayed[i]) + (queue == UNKNOWN_QUEUE and legacy_items or 0),
    overdue[queue] or 0,
    whole_or_zero(running[i]),
    whole_or_zero(dead[i]),
    whole_or_zero(accepted[i]),
    math.max(age, due_age),
    oldest[queue] or 0,
    paused[i],
    (served[queue] or served_as(patterns, queue)) and 1 or 0,
    closed_us,
    condition,
    fault,
  }
end
return reply
