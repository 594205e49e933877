#!lua
-- Accept tasks. The only transition besides revive that a full server refuses (no allow-oom), so that it is
-- producers who are pushed back.
-- with: prefix clock entry doorbell books bare
-- KEYS[1]  tasks
-- ARGV     nonce, then up to 500 x: id, queue, due ('' | '+us' | '@unix us'), unique key, hold ms, body
-- errors   ROTA… when there are too many, or a name is none: nothing was done
-- returns  a word each: ok | unserved (accepted, no live master serves the queue) | duplicate | held ID
-- Invariant: an accepted id is in `tasks` and in exactly one place; a nonce seen within 60 s changes nothing.
local FIELDS, MOST = 6, 500
local now = redis_now()
local sent = PREFIX .. 'sent:' .. ARGV[1]
local told = redis.call('GET', sent)
if told then
  local words = {}
  for word in string.gmatch(told, '[^\n]+') do words[#words + 1] = word end
  return words
end

local function due_of(text)
  local sign, digits = string.match(text, '^([+@])(%d+)$')
  if not sign then return now end
  return math.min(sign == '+' and now + tonumber(digits) or tonumber(digits), LATEST)
end

local function somebody_serves_something()
  for _, untill in ipairs(redis.call('HVALS', PREFIX .. 'served')) do
    if (tonumber(untill) or 0) > now then return true end
  end
  return false
end

local function live_holder(key)
  local id = redis.call('GET', PREFIX .. 'unique:' .. key)
  return id and redis.call('HEXISTS', PREFIX .. 'tasks', id) == 1 and id
end

local unserved_known = {}
local function unserved(queue)
  if unserved_known[queue] == nil then
    local untill = tonumber(redis.call('HGET', PREFIX .. 'served', queue) or '') or 0
    unserved_known[queue] = untill <= now and somebody_serves_something()
  end
  return unserved_known[queue]
end

-- Read and decide. Nothing is written until every item has been judged.
if #ARGV > 1 + MOST * FIELDS then return redis.error_reply('ROTA at most 500 tasks a call') end
guard_places()
redis.call('SCARD', PREFIX .. 'queues')
local words, accepted, queues, ids, holders = {}, {}, {}, {}, {}
for at = 2, #ARGV, FIELDS do
  local id, queue, key = ARGV[at], ARGV[at + 1], ARGV[at + 3]
  if not name_or_nil(id) or not queue_or_nil(queue) then
    return redis.error_reply('ROTA not a name: ' .. string.sub(id .. ' in ' .. queue, 1, 200))
  end
  if not queues[queue] then
    redis.call('LLEN', ready_lane(queue)) -- of another type it raises here
    queues[queue] = { entries = {}, accepted = 0, delayed = 0 }
    queues[#queues + 1] = queue
  end
  local holder = key ~= '' and (holders[key] or live_holder(key))
  local word = unserved(queue) and 'unserved' or 'ok'
  if ids[id] or redis.call('HEXISTS', PREFIX .. 'tasks', id) == 1 then
    word = 'duplicate'
  elseif holder then
    word = 'held ' .. holder
  else
    ids[id] = true
    if key ~= '' then holders[key] = id end
    accepted[#accepted + 1] = at
  end
  words[#words + 1] = word
end

local function hold(id, key, ms)
  redis.call('HSET', PREFIX .. 'keys', id, key)
  if ms > 0 then
    redis.call('SET', PREFIX .. 'unique:' .. key, id, 'PX', math.min(ms, LATEST))
  else
    redis.call('SET', PREFIX .. 'unique:' .. key, id)
  end
end

local function place(at, first_due)
  local id, queue, due, key = ARGV[at], ARGV[at + 1], due_of(ARGV[at + 2]), ARGV[at + 3]
  local of_queue = queues[queue]
  local e = {
    id = id, queue = queue, kind = 'i', due = now, ready = now,
    failures = 0, crashes = 0, losses = 0, releases = 0, flag = key ~= '' and 'u' or '-',
  }
  redis.call('HSET', PREFIX .. 'tasks', id, ARGV[at + 5])
  if key ~= '' then hold(id, key, tonumber(ARGV[at + 4]) or 0) end
  of_queue.accepted = of_queue.accepted + 1
  if due <= now then
    of_queue.entries[#of_queue.entries + 1] = entry_text(e)
    return first_due
  end
  e.kind = 'd'
  redis.call('HSET', PREFIX .. 'tickets', id, ticket_text(e))
  redis.call('ZADD', PREFIX .. 'delayed', to_score(due), id)
  of_queue.delayed = of_queue.delayed + 1
  return math.min(first_due, due)
end

local first = redis.call('ZRANGE', PREFIX .. 'delayed', 0, 0, 'WITHSCORES')
local waiting_for = first[1] and from_score(first[2]) or math.huge
local first_due = math.huge
for _, at in ipairs(accepted) do first_due = place(at, first_due) end
for _, queue in ipairs(queues) do
  local of_queue = queues[queue]
  if of_queue.accepted > 0 then
    redis.call('SADD', PREFIX .. 'queues', queue)
    total('accepted:' .. queue, of_queue.accepted)
  end
  if of_queue.delayed > 0 then count('delayed:' .. queue, of_queue.delayed) end
  if #of_queue.entries > 0 then
    redis.call('RPUSH', ready_lane(queue), unpack(of_queue.entries))
    redis.call('SADD', PREFIX .. 'ready', queue)
    ring(queue)
  end
end
if first_due < waiting_for then ring_pollers() end
redis.call('SET', sent, table.concat(words, '\n'), 'PX', 60000)
return words
