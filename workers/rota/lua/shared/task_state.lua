-- Return the state of a task, for the scripts `status` and `wait`.
-- with: remembered ticket
-- keys     dead delayed epitaphs queue:* result:* tasks tickets
local MOST_SEARCHED = 500

local function progress_of(id)
  local text = redis.pcall('HGET', PROGRESS, id)
  return type(text) == 'string' and text
end

local function task_state(state, id, e, more)
  e, more = e or {}, more or {}
  -- Attempt records exist for a dead task, and for a live task if its flag has a capital letter.
  local is_kept = e.died or string.find(e.flag or '', '%u')
  return {
    state, e.queue or '', e.due or 0, e.failures or 0, e.crashes or 0, e.losses or 0, more.owner or '',
    more.body or '', is_kept and redis.call('HGET', PREFIX .. 'epitaphs', id) or '', more.result or false,
    state == 'running' and any_progress and progress_of(id) or '', e.died and from_score(e.died) or 0,
    more.record or '', e.kind or '', e.ready or 0, more.further or 0,
  }
end

local function entry_among(lane, id)
  local lines = redis.pcall('LRANGE', lane, 0, MOST_SEARCHED - 1)
  for _, line in ipairs(lines.err and {} or lines) do
    local e = id_of(line) == id and parse_entry(line)
    if e and not is_tombstone(id, e.flag) then return e end
  end
end

-- The body has the queue's name, except in the shortest legacy items.
local function entry_in_lanes(id, body)
  local _, queue = item_names(body)
  if not queue then return nil end
  return entry_among(delayed_lane(queue), id) or entry_among(ready_lane(queue), id) or { queue = queue }
end

-- Return how a task ended, and its stored result. A record that is not valid is ignored.
local function ended(id, otherwise, from)
  local result = redis.pcall('GET', PREFIX .. 'result:' .. id)
  result = type(result) == 'string' and result
  local record, further = record_of(id, from)
  local how = string.match(record or '', '^%l+') or otherwise or result and 'done' or 'unknown'
  return task_state(how, id, nil, { result = result, record = record, further = further })
end

-- Return the state of an id. `find_holder` is `holder_of` or a faster version for many ids. `from` is the number of
-- texts of ends.lua to skip.
local function task_state_of(id, find_holder, from)
  local body = redis.call('HGET', PREFIX .. 'tasks', id)
  if not body then return ended(id, nil, from) end
  local e = parse_ticket(id, redis.call('HGET', PREFIX .. 'tickets', id))
  if e then
    e.died = redis.call('ZSCORE', PREFIX .. 'dead', id)
    if e.died then return task_state('dead', id, e, { body = body }) end
    e.due = from_score(redis.call('ZSCORE', PREFIX .. 'delayed', id))
    return task_state('scheduled', id, e, { body = body })
  end
  local owner, line = find_holder(id)
  if owner then return task_state('running', id, parse_entry(line), { body = body, owner = owner }) end
  if body == '' then return ended(id, 'cancelled', from) end
  return task_state('ready', id, entry_in_lanes(id, body), { body = body })
end
