#!lua flags=allow-oom
-- Move due tasks from the delayed set to the delayed lanes of their queues, in the order of their due times.
-- with: prefix clock numbers entry ticket lists doorbell counters in_use incarnations legacy_item task_events waiters
-- with: other_ends following
-- with: adopt overlap withdrawal
-- KEYS[1]  tasks
-- ARGV
--   limit  maximum number of tasks to move
-- keys     counts dead delayed doorbell doorbell:* ends ends-sealed ends-untold ends:* epitaphs events events-on former
--          group-members:* group:* groups idle inflight:* keys members meta owners patterns paused progress queue:*
--          queues ready replies:* result:* schedules-alive served tasks tickets times:* totals turns:* unique:* waiters
-- returns  now in microseconds; the next due time in microseconds or ''; 0|1 whether more tasks may be due; the number
--          of items that became dead because they are not tasks or have no usable lane; a list of queues, each followed
--          by the number of its moved tasks; a list of schedules, one for each occurrence that was skipped because an
--          earlier one has not ended
-- Invariant: no task leaves the delayed set before its due time. It is then in exactly one lane or in the dead set, or
-- it has ended, because it was cancelled, had expired or was skipped.
local UNKNOWN_QUEUE = 'unknown'
local GARBAGE = '{"reason":"garbage","error":"not a task: no queue could be read from this member of the delayed set"}'
-- The two parts of a ticket. An entry consists of the id, the first part, two times, and the second part, so most
-- tickets need no further parsing.
local PIECES = '^((%S+) [idrp]) (%d+ %d+ %d+ %d+ [-u%d%u]%d*%u?)$'
local SHORT = 20 -- up to this length of counters and flag, no counter has too many digits
local now, limit = redis_now(), tonumber(ARGV[1])
local ready = digits_of(now)

-- The members that are due, with their due times as numbers and as texts.
local found = redis.call('ZRANGEBYSCORE', PREFIX .. 'delayed', '-inf', to_score(now), 'WITHSCORES', 'LIMIT', 0, limit)
local members, dues, score, due, due_text = {}, {}, nil, nil, nil
for i = 1, #found, 2 do
  if found[i + 1] ~= score then -- members with the same due time are adjacent
    score = found[i + 1]
    due = from_score(score)
    due_text = digits_of(due)
  end
  -- The score was rounded when it was written, so compare the time in whole microseconds too. A task must not start too
  -- early.
  if due <= now then
    members[#members + 1] = found[i]
    dues[#dues + 1] = { us = due, text = due_text }
  end
end
local waiting, queues = {}, {}

local function note_queue(queue)
  if not queues[queue] then
    queues[queue] = { name = queue, usable = is_list(delayed_lane(queue)), texts = {}, fronts = {}, delayed = 0 }
    queues[#queues + 1] = queues[queue]
  end
  return queues[queue]
end

-- Identify a task without a ticket by its body (if the ticket was lost) or by the member itself (if it is a legacy
-- item).
local function tell_without_ticket(task)
  local body = redis.call('HGET', PREFIX .. 'tasks', task.member)
  local id, queue = item_names(body or task.member)
  task.known, task.id = body and true or false, body and task.member or id
  return name_or_nil(task.id) and queue or not body and queue
end

local function look_up()
  guard_task_keys()
  redis.call('SCARD', PREFIX .. 'queues')
  local tickets = redis.call('HMGET', PREFIX .. 'tickets', unpack(members))
  local died = redis.call('ZCARD', PREFIX .. 'dead') > 0 and redis.call('ZMSCORE', PREFIX .. 'dead', unpack(members))
  for i, member in ipairs(members) do
    local head, queue, counters = string.match(tickets[i] or '', PIECES)
    if head and not queues[queue] and not name_or_nil(queue) then head = nil end
    local e = (not head or #counters > SHORT) and parse_ticket(member, tickets[i])
    if head and #counters > SHORT and not e then head = nil end
    local task = { member = member, due = dues[i], dead = died and died[i], head = head, counters = counters }
    if e and not head and name_or_nil(e.queue) then -- the ticket has more than the usual fields
      task.entry, queue = e, e.queue
    elseif not head then
      queue = tell_without_ticket(task)
    end
    task.queue = queue and note_queue(queue)
    waiting[i] = task
  end
end

-- Remove the members and tickets before anything is moved, because `bury` may write a new ticket for the same id.
local function take_out()
  local ticketed = {}
  for _, task in ipairs(waiting) do
    if not task.dead then ticketed[#ticketed + 1] = task.member end
  end
  redis.call('ZREM', PREFIX .. 'delayed', unpack(members))
  if #ticketed > 0 then redis.call('HDEL', PREFIX .. 'tickets', unpack(ticketed)) end
end

-- The due time of a throttled task is in its ticket. Its score is only the time at which it may start.
local function entry_of(task)
  local e = task.entry
  if not e then return parse_ticket(task.member, task.head .. ' ' .. task.counters) end
  e.due, e.ready = math.min(e.scheduled or task.due.us, task.due.us), now
  return e
end

local function without_ticket(task)
  local id, queue = task.member, task.queue and task.queue.name or UNKNOWN_QUEUE
  if not task.known then return adopt(id, task.id, queue, 'd', task.due.us, now) end
  return rebuilt_entry(id, queue, 'd', task.due.us, incarnation_of(id), now)
end

-- Cancel an occurrence that must not overlap with an earlier occurrence. Return whether it was cancelled.
local left_out = {}
local function is_left_out(task)
  if string.sub(task.head, -1) ~= 'p' then return false end
  local name = schedule_in(task.member)
  if not name or not overlapped_by(name, task.member) then return false end
  local e = parse_ticket(task.member, task.head .. ' ' .. task.counters)
  e.due, e.ready = task.due.us, now
  leave_out(e, now)
  left_out[#left_out + 1] = name
  return true
end

local buried = 0
local function move(task)
  local queue = task.queue
  local is_ours = task.head or task.entry
  if is_ours then queue.delayed = queue.delayed + 1 end
  if any_overlaps and task.head and is_left_out(task) then return end
  if task.head and queue.usable then
    local text = task.member .. ' ' .. task.head .. ' ' .. task.due.text .. ' ' .. ready .. ' ' .. task.counters
    queue.texts[#queue.texts + 1] = text
    if report then report('ready', text) end
    return
  end
  local e = is_ours and entry_of(task) or without_ticket(task)
  if queue and queue.usable then
    local lane = e.front and queue.fronts or queue.texts
    lane[#lane + 1] = entry_text(e)
    -- An adopted item was already reported as enqueued.
    if report and (task.known or task.entry) then report('ready', entry_text(e)) end
  else
    bury(e, queue and UNUSABLE or GARBAGE, now)
    redis.call('SADD', PREFIX .. 'queues', e.queue) -- otherwise no listing would show the queue's dead tasks
    buried = buried + 1
  end
end

-- Push the moved tasks of a queue to its lane, and add them to the reply.
local moved = {}
local function fill(queue)
  if queue.delayed > 0 then count('delayed:' .. queue.name, -queue.delayed) end
  local lane, size = delayed_lane(queue.name), #queue.texts + #queue.fronts
  if size == 0 then return end
  if #queue.texts > 0 then redis.call('RPUSH', lane, unpack(queue.texts)) end
  -- LPUSH reverses the order, just as if each task had been pushed alone.
  if #queue.fronts > 0 then redis.call('LPUSH', lane, unpack(queue.fronts)) end
  redis.call('SADD', PREFIX .. 'ready', queue.name)
  redis.call('SADD', PREFIX .. 'queues', queue.name)
  ring(queue.name)
  moved[#moved + 1] = queue.name
  moved[#moved + 1] = size
end

if #members > 0 then
  look_up()
  take_out()
  for _, task in ipairs(waiting) do
    if not task.dead then move(task) end -- a dead task that was scheduled by hand stays dead; see revive.lua
  end
  for _, queue in ipairs(queues) do fill(queue) end
end

local first = redis.call('ZRANGE', PREFIX .. 'delayed', 0, 0, 'WITHSCORES')
local next_due = first[1] and digits_of(from_score(first[2])) or ''
return { now, next_due, #members >= limit and 1 or 0, buried, moved, left_out }
