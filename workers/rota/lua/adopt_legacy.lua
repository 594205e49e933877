#!lua flags=allow-oom
-- Turn the items of legacy lists into tasks. Producers push these items to keys outside the namespace. An item of a
-- list becomes ready at once. An item of a sorted set becomes ready at the time in its score. An item goes to the dead
-- set if neither the item nor its source names a queue, if the item is due in more than ten years, or if the lane of
-- its queue is not a list.
-- with: prefix clock numbers entry doorbell counters in_use incarnations legacy_item task_events waiters other_ends
-- with: following
-- with: adopt leases
-- KEYS[1]  tasks
-- ARGV
--   name              name of this poller
--   limit             maximum number of items to take, divided equally among the sources that have items, but at least
--                     one from each
--   key, queue, task  per source: its key, and its queue and task name, each '' if not configured
-- keys     counts dead delayed doorbell doorbell:* ends ends-sealed ends-untold ends:* epitaphs events events-on former
--          group-members:* group:* groups idle keys members meta patterns paused progress pulse queue:* queues ready
--          replies:* result:* served tasks tickets times:* totals turns:* unique:* waiters
-- returns  now in microseconds; 0|1 whether this poller is the one that reads the sources for the fleet, which it
--          remains as long as it calls at least once a second; the next due time in microseconds or ''; 0|1 whether
--          items are left that could be taken now; (number of items taken, number of items left, error or '') per
--          source; (queue, reason) per item that went to the dead set, where the reason is garbage, too_far_ahead or
--          unusable_lane
-- Invariant: an item is either in its source or a task. The items of a source are taken in order. A source that cannot
-- be read does not affect the others.
-- Ten years and one second, in microseconds.
local UNKNOWN_QUEUE, LONGEST_WAIT, LEADS_FOR = 'unknown', 3653 * 86400 * 1000000, 1000000
local DEATH_RECORDS = {
  garbage = '{"reason":"garbage","error":"not a task: neither this item nor its source names a queue"}',
  too_far_ahead = '{"reason":"too_far_ahead","error":"due in more than ten years: is its score in milliseconds? '
    .. 'A score is Unix time in seconds"}',
}
local now, name, limit = redis_now(), ARGV[1], tonumber(ARGV[2])
guard_task_keys()
redis.call('SCARD', PREFIX .. 'queues')
local is_leader = leads(name, 'adopter', 'adopts_until', LEADS_FOR, now)

-- If a source is a list `queue:NAME` that feeds another queue, scheduled items that name the queue NAME go to that
-- other queue too. `routes` maps NAME to the other queue.
local sources, routes = {}, {}
for at = 3, #ARGV, 3 do
  local source = { key = ARGV[at], queue = ARGV[at + 1], task = ARGV[at + 2], taken = 0, left = 0, fault = '' }
  sources[#sources + 1] = source
  local old = string.match(source.key, '^queue:(.+)$')
  if old and source.queue ~= '' then routes[old] = source.queue end
end

-- Return the reply of a command on a source, or nil if the server refused it. In that case, store the error in the
-- record of the source.
local function ask(source, command, ...)
  local reply = redis.pcall(command, source.key, ...)
  if type(reply) ~= 'table' or not reply.err then return reply end
  source.fault = reply.err
end

local function look(source)
  local kind = ask(source, 'TYPE')
  source.kind = kind and kind.ok
  if source.kind == 'list' then
    source.ready = ask(source, 'LLEN') or 0
  elseif source.kind == 'zset' then
    source.too_far = '(' .. to_score(now + LONGEST_WAIT)
    local due, too_far = ask(source, 'ZCOUNT', '-inf', to_score(now)), ask(source, 'ZCOUNT', source.too_far, '+inf')
    source.ready = (due or 0) + (too_far or 0)
  elseif source.kind and source.kind ~= 'none' then
    source.fault = 'it is a ' .. source.kind .. ', and neither a list nor a sorted set'
  end
end

-- Return up to `most` members of a sorted set that are due, or whose due time is too far ahead for a task.
local function due_members(source, most)
  local found = ask(source, 'ZRANGE', '-inf', to_score(now), 'BYSCORE', 'LIMIT', 0, most, 'WITHSCORES') or {}
  local items = {}
  for i = 1, #found, 2 do
    local due = from_score(found[i + 1])
    -- The server compared the score with a rounded time. Compare it again, because a task must never start early.
    if due <= now then items[#items + 1] = { text = found[i], due = due } end
  end
  if #items == most then return items end
  local far = ask(source, 'ZRANGE', source.too_far, '+inf', 'BYSCORE', 'LIMIT', 0, most - #items)
  for _, member in ipairs(far or {}) do items[#items + 1] = { text = member, due = now, reason = 'too_far_ahead' } end
  return items
end

-- Remove up to `most` items from a source and return them.
local function take(source, most)
  local items = {}
  if source.kind == 'list' then
    for i, text in ipairs(ask(source, 'LPOP', most) or {}) do items[i] = { text = text, due = now } end
    return items
  end
  items = due_members(source, most)
  local members = {}
  for i, item in ipairs(items) do members[i] = item.text end
  return #items > 0 and ask(source, 'ZREM', unpack(members)) and items or {}
end

-- If the source names a task, the item becomes the task's only argument. Otherwise the item names its task.
local lanes, dead = {}, {}
local function become_task(source, item)
  local id, named
  if source.task == '' then id, named = item_names(item.text) end
  local queue = source.queue ~= '' and source.queue or routes[named or ''] or named
  local text = source.task == '' and item.text or '["' .. source.task .. '",[' .. item.text .. ']]'
  local kind = source.kind == 'list' and 'i' or 'd'
  local e = adopt(text, id, queue or UNKNOWN_QUEUE, kind, item.due, now)
  local reason = item.reason or not queue and 'garbage'
  local key = lane_of(e.queue, kind)
  lanes[key] = lanes[key] or { queue = e.queue, usable = is_list(key), texts = {} }
  if reason or not lanes[key].usable then
    bury(e, DEATH_RECORDS[reason] or UNUSABLE, now)
    dead[#dead + 1] = e.queue
    dead[#dead + 1] = reason or 'unusable_lane'
    return
  end
  table.insert(lanes[key].texts, entry_text(e))
end

local function fill_lanes()
  for key, lane in pairs(lanes) do
    redis.call('SADD', PREFIX .. 'queues', lane.queue)
    if #lane.texts > 0 then
      redis.call('RPUSH', key, unpack(lane.texts))
      redis.call('SADD', PREFIX .. 'ready', lane.queue)
      ring(lane.queue)
    end
  end
end

local filled, next_due, more = 0, math.huge, 0
for _, source in ipairs(sources) do
  look(source)
  if (source.ready or 0) > 0 then filled = filled + 1 end
end
for _, source in ipairs(sources) do
  if (source.ready or 0) > 0 then
    local items = take(source, math.max(1, math.floor(limit / filled)))
    for _, item in ipairs(items) do become_task(source, item) end
    source.taken = #items
    if #items > 0 and source.ready > #items then more = 1 end
  end
end
fill_lanes()

local taken = {}
for _, source in ipairs(sources) do
  if source.kind == 'list' then
    source.left = ask(source, 'LLEN') or 0
  elseif source.kind == 'zset' then
    source.left = ask(source, 'ZCARD') or 0
    local first = ask(source, 'ZRANGE', 0, 0, 'WITHSCORES') or {}
    if first[2] then next_due = math.min(next_due, from_score(first[2])) end
  end
  taken[#taken + 1] = source.taken
  taken[#taken + 1] = source.left
  taken[#taken + 1] = source.fault
end
return { now, is_leader, next_due < math.huge and digits_of(next_due) or '', more, taken, dead }
