#!lua flags=no-writes
-- Return a page of the tasks in one state, for people. Only the entries of the page are read.
-- with: prefix clock entry ticket doorbell lists in_use incarnations legacy_item
-- KEYS[1]  tasks
-- ARGV
--   state   ready | scheduled | running | dead
--   queue   name of a queue, '' for all; required for `ready`
--   task    name of the tasks to return, '' for all
--   offset  where the page begins
--   count   number of entries to read, up to 500; for `running`, see below
-- keys     dead delayed doorbell doorbell:* epitaphs events-on former idle inflight:* members owners patterns paused
--          progress queue:* served tasks tickets times:* turns:* waiters
-- returns  now in microseconds, the number of entries read, the offset of the next page ('' after the last), then a row
--          per task: id, queue, name, due time, time at which it became ready or died (both in microseconds, 0 if not
--          known), failures, crashes, losses, owner, and the death record of a dead task or the progress of a running
--          task
--   ready      both lanes of the queue, the delayed lane first, because it is served first
--   scheduled  the delayed set, earliest due time first
--   running    the in-flight lists; the offset counts owners. Lists are read completely, as long as they have at most
--              `count` entries in total; the first list that is not empty is always read, up to 500 entries
--   dead       the dead set, latest first
-- Cancelled tasks are left out. An item that is not an entry is a legacy item; its row has the names that the item
-- contains.
local MOST, LONGEST_DETAIL = 500, 4000
local now, state, queue, task = redis_now(), ARGV[1], ARGV[2], ARGV[3]
local offset, count = tonumber(ARGV[4]), math.max(1, math.min(tonumber(ARGV[5]), MOST))
local examined, rows = 0, {}

local function show(e, name, more)
  if (queue ~= '' and e.queue ~= queue) or (task ~= '' and name ~= task) then return end
  rows[#rows + 1] = {
    e.id, e.queue, name, e.due or 0, more.since or 0, e.failures or 0, e.crashes or 0, e.losses or 0,
    more.owner or '', string.sub(more.detail or '', 1, LONGEST_DETAIL),
  }
end

local function show_legacy_item(text, in_queue, due)
  local id, named = item_names(text)
  show({ id = id or '', queue = in_queue or named or '', due = due }, name_in(text), {})
end

-- Add the row for a line of a lane or of an in-flight list.
local function show_line(line, owner, in_queue)
  examined = examined + 1
  local e = parse_entry(line)
  if not e then return show_legacy_item(line, in_queue) end
  local body = redis.call('HGET', PREFIX .. 'tasks', e.id)
  if is_tombstone(e.id, e.flag) or not body or (body == '' and not owner) then return end
  local detail = owner and any_progress and redis.pcall('HGET', PROGRESS, e.id)
  show(e, name_in(body), { since = e.ready, owner = owner, detail = type(detail) == 'string' and detail })
end

local function show_ready()
  local skip = offset
  for _, lane in ipairs({ delayed_lane(queue), ready_lane(queue) }) do
    local size, room = length(lane), count - examined
    if skip < size and room > 0 then
      for _, line in ipairs(redis.call('LRANGE', lane, skip, skip + room - 1)) do show_line(line, nil, queue) end
    end
    skip = math.max(0, skip - size)
  end
  return entries_in(queue)
end

local function show_running()
  local owners, at = redis.call('ZRANGE', PREFIX .. 'owners', offset, offset + MOST - 1), offset
  for _, owner in ipairs(owners) do
    local list = PREFIX .. 'inflight:' .. owner
    if examined > 0 and examined + length(list) > count then break end
    local lines = length(list) > 0 and redis.call('LRANGE', list, 0, MOST - 1) or {}
    for _, line in ipairs(lines) do show_line(line, owner) end
    at = at + 1
  end
  return redis.call('ZCARD', PREFIX .. 'owners'), at
end

-- Add rows for members of a sorted set. `show_known` is called for members that have a ticket.
local function show_scored(key, page, show_known)
  for i = 1, #page, 2 do
    examined = examined + 1
    local id, at = page[i], from_score(page[i + 1])
    local e = parse_ticket(id, redis.call('HGET', PREFIX .. 'tickets', id))
    local body = redis.call('HGET', PREFIX .. 'tasks', id)
    if e then
      show_known(e, body or '', at)
    elseif body then
      local _, named = item_names(body)
      show({ id = id, queue = named or '', due = at }, name_in(body), {})
    else
      show_legacy_item(id, nil, at)
    end
  end
  return redis.call('ZCARD', key)
end

local function show_scheduled()
  local key = PREFIX .. 'delayed'
  return show_scored(key, redis.call('ZRANGE', key, offset, offset + count - 1, 'WITHSCORES'), function(e, body, due)
    e.due = due
    show(e, name_in(body), {})
  end)
end

local function show_dead()
  local key = PREFIX .. 'dead'
  local latest = redis.call('ZREVRANGE', key, offset, offset + count - 1, 'WITHSCORES')
  return show_scored(key, latest, function(e, body, died)
    local records = redis.call('HGET', PREFIX .. 'epitaphs', e.id) or ''
    show(e, name_in(body), { since = died, detail = string.match(records, '[^\n]*$') })
  end)
end

local views = { ready = show_ready, scheduled = show_scheduled, running = show_running, dead = show_dead }
local size, reached = views[state]()
reached = reached or offset + examined
return { now, examined, reached < size and reached or '', rows }
