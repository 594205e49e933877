#!lua flags=allow-oom
-- Move tasks that are due to the delayed lanes of their queues, in order of due.
-- with: prefix clock entry doorbell books ending bare adopt
-- KEYS[1]  tasks
-- ARGV     limit
-- returns  now, next due us or '', more 0|1, how many garbage members were set aside, (queue, count)...
-- Invariant: nothing is moved before its due time; each member ends in one lane or in dead.
local UNKNOWN_QUEUE = 'unknown'
local GARBAGE = '{"reason":"garbage","error":"not a task: no queue could be read from this member of the delayed set"}'
local now, limit = redis_now(), tonumber(ARGV[1])
guard_places()
redis.call('SCARD', PREFIX .. 'queues')

local due = redis.call('ZRANGEBYSCORE', PREFIX .. 'delayed', '-inf', to_score(now), 'WITHSCORES', 'LIMIT', 0, limit)
local members, dues = {}, {}
for i = 1, #due, 2 do
  -- A score is rounded to a microsecond when it is written; never early means by the exact one.
  if from_score(due[i + 1]) <= now then
    members[#members + 1] = due[i]
    dues[#dues + 1] = from_score(due[i + 1])
  end
end

-- Read: tickets; for members without one, the body behind the id (a lost ticket) or the member itself (a bare item).
local tickets = #members > 0 and redis.call('HMGET', PREFIX .. 'tickets', unpack(members)) or {}
local died = #members > 0 and redis.call('ZMSCORE', PREFIX .. 'dead', unpack(members)) or {}
local waiting, queues = {}, {}
for i, member in ipairs(members) do
  local e = parse_ticket(member, tickets[i])
  local task = { e = e, member = member, due = dues[i], dead = died[i] }
  if not e then
    local body = redis.call('HGET', PREFIX .. 'tasks', member)
    local id, queue = bare_names(body or member)
    task.known, task.id, task.queue = body and true or false, body and member or id, queue
  end
  local queue = e and e.queue or task.queue
  if queue and not queues[queue] then
    queues[queue] = { usable = is_list(delayed_lane(queue)) }
    queues[#queues + 1] = queue
  end
  waiting[i] = task
end

-- Write. What lies in `delayed` leaves it first, so that a burial below may write the same id's ticket anew.
if #members > 0 then
  redis.call('ZREM', PREFIX .. 'delayed', unpack(members))
  for _, task in ipairs(waiting) do
    if not task.dead then redis.call('HDEL', PREFIX .. 'tickets', task.member) end
  end
end

local function without_ticket(task)
  local queue = task.queue or UNKNOWN_QUEUE
  if not task.known then return adopt(task.member, task.id, queue, 'd', task.due, now) end
  return {
    id = task.member, queue = queue, kind = 'd', failures = 0, crashes = 0, losses = 0, releases = 0,
    flag = redis.call('HEXISTS', PREFIX .. 'keys', task.member) == 1 and 'u' or '-',
  }
end

local buried = 0
local function set_aside(e, epitaph)
  bury(e, epitaph, now)
  redis.call('SADD', PREFIX .. 'queues', e.queue) -- or nobody would be shown its dead
  buried = buried + 1
end

local function move(task)
  local e = task.e or without_ticket(task)
  if task.e then count('delayed:' .. e.queue, -1) end
  local texts = queues[e.queue]
  if not task.e and not task.queue then
    set_aside(e, GARBAGE)
  elseif not texts.usable then
    set_aside(e, UNUSABLE)
  else
    e.due, e.ready = task.due, now
    table.insert(texts, entry_text(e))
  end
end

for _, task in ipairs(waiting) do
  if not task.dead then move(task) end -- a dead task that somebody scheduled by hand stays dead: see revive
end
local moved = {}
for _, queue in ipairs(queues) do
  local texts = queues[queue]
  if #texts > 0 then
    redis.call('RPUSH', delayed_lane(queue), unpack(texts))
    redis.call('SADD', PREFIX .. 'ready', queue)
    redis.call('SADD', PREFIX .. 'queues', queue)
    ring(queue)
    moved[#moved + 1] = queue
    moved[#moved + 1] = #texts
  end
end

local first = redis.call('ZRANGE', PREFIX .. 'delayed', 0, 0, 'WITHSCORES')
local next_due = first[1] and string.format('%.0f', from_score(first[2])) or ''
return { now, next_due, #members >= limit and 1 or 0, buried, moved }
