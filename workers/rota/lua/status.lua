#!lua flags=no-writes
-- Where an id stands.
-- with: prefix clock entry lists in_use former bare
-- KEYS[1]  tasks
-- ARGV     id
-- returns  state, queue, due us, failures, crashes, losses, owner, body, accounts, result (nil when none is kept),
--          progress, when a dead task died (us), the record of its end while that is remembered, kind, ready us
local LOOK = 500
local id = ARGV[1]
local body = redis.call('HGET', PREFIX .. 'tasks', id)

local function said()
  local text = redis.pcall('HGET', PROGRESS, id)
  return type(text) == 'string' and text
end

local function answer(state, e, more)
  e, more = e or {}, more or {}
  -- What is kept of its attempts: of one that lives its flag has a capital letter then.
  local is_kept = e.died or string.find(e.flag or '', '%u')
  return {
    state, e.queue or '', e.due or 0, e.failures or 0, e.crashes or 0, e.losses or 0, more.owner or '',
    body or '', is_kept and redis.call('HGET', PREFIX .. 'epitaphs', id) or '', more.result or false,
    state == 'running' and any_progress and said() or '', e.died and from_score(e.died) or 0, more.record or '',
    e.kind or '', e.ready or 0,
  }
end

local function entry_among(lane)
  local lines = redis.pcall('LRANGE', lane, 0, LOOK - 1)
  for _, line in ipairs(lines.err and {} or lines) do
    local e = id_of(line) == id and parse_entry(line)
    if e and not is_shell(id, e.flag) then return e end
  end
end

-- The queue's name stands in the body, but for the shortest bare items.
local function waiting()
  local _, queue = bare_names(body)
  if not queue then return nil end
  return entry_among(delayed_lane(queue)) or entry_among(ready_lane(queue)) or { queue = queue }
end

-- How it ended, and what is kept of what it returned. Whatever else stands in the place of a record says nothing.
local function ended(otherwise)
  local record, result = false, redis.call('GET', PREFIX .. 'result:' .. id)
  for _, memory in ipairs({ 'ended', 'ended-before' }) do
    local found = record or redis.pcall('HGET', PREFIX .. memory, id)
    record = type(found) == 'string' and found
  end
  local how = record and string.match(record, '^%l+') or result and 'done' or otherwise
  return answer(how, nil, { result = result, record = record })
end

if not body then return ended('unknown') end
local e = parse_ticket(id, redis.call('HGET', PREFIX .. 'tickets', id))
if e then
  e.died = redis.call('ZSCORE', PREFIX .. 'dead', id)
  if e.died then return answer('dead', e) end
  e.due = from_score(redis.call('ZSCORE', PREFIX .. 'delayed', id))
  return answer('scheduled', e)
end
local owner, line = holder_of(id)
if owner then return answer('running', parse_entry(line), { owner = owner }) end
if body == '' then return ended('cancelled') end
return answer('ready', waiting())
