#!lua flags=no-writes
-- Where an id stands.
-- with: prefix clock entry bare
-- KEYS[1]  tasks
-- ARGV     id
-- returns  state, queue, due us, failures, crashes, losses, owner, body, epitaph, result
local LOOK = 500
local id = ARGV[1]
local body = redis.call('HGET', PREFIX .. 'tasks', id)

local function answer(state, e, more)
  e, more = e or {}, more or {}
  return {
    state, e.queue or '', e.due or 0, e.failures or 0, e.crashes or 0, e.losses or 0, more.owner or '',
    body or '', more.epitaph or '', more.result or '',
  }
end

local function entry_among(texts)
  for _, text in ipairs(texts) do
    if string.sub(text, 1, #id + 1) == id .. ' ' then return parse_entry(text) end
  end
end

local function running()
  for _, owner in ipairs(redis.call('ZRANGE', PREFIX .. 'owners', 0, LOOK - 1)) do
    local e = entry_among(redis.call('LRANGE', PREFIX .. 'inflight:' .. owner, 0, -1))
    if e then return e, owner end
  end
end

local function waiting()
  for _, queue in ipairs(redis.call('SMEMBERS', PREFIX .. 'queues')) do
    local e = entry_among(redis.call('LRANGE', delayed_lane(queue), 0, LOOK - 1))
      or entry_among(redis.call('LRANGE', ready_lane(queue), 0, LOOK - 1))
    if e then return e end
  end
end

if not body then
  local result = redis.call('GET', PREFIX .. 'result:' .. id)
  return answer(result and 'done' or 'unknown', nil, { result = result })
end
local e = parse_ticket(id, redis.call('HGET', PREFIX .. 'tickets', id))
if e then
  local died = redis.call('ZSCORE', PREFIX .. 'dead', id)
  if died then return answer('dead', e, { epitaph = redis.call('HGET', PREFIX .. 'epitaphs', id) }) end
  e.due = from_score(redis.call('ZSCORE', PREFIX .. 'delayed', id))
  return answer('scheduled', e)
end
local entry, owner = running()
if entry then return answer('running', entry, { owner = owner }) end
local _, queue = bare_names(body)
return answer(body == '' and 'cancelled' or 'ready', waiting() or { queue = queue })
