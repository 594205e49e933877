#!lua flags=allow-oom
-- Take what producers of classic queues left in keys of their own, outside of the namespace: what stands in a list is
-- ready, what stands in a sorted set when it is due.
-- with: prefix clock numbers entry doorbell books in_use former bare news waiters otherwise following adopt leases
-- KEYS[1]  tasks
-- ARGV
--   name              of this poller
--   limit             how many items at most
--   key, queue, task  of each source; queue and task are '' for none
-- keys     counts dead delayed doorbell doorbell:* ends ends-sealed ends-untold ends:* epitaphs events events-on former
--          group-members:* group:* groups idle keys members meta patterns paused progress pulse queue:* queues ready
--          replies:* result:* served tasks tickets times:* totals turns:* unique:* waiters
-- returns  now, whether it is the one poller of the fleet that listens 0|1, next due us or '', more 0|1,
--          (taken, left, what is wrong with it or '') of each source, (queue, reason) of each item that is dead at once
-- Invariant: an item is in its source, or it is a task. What one source has is taken in its order, and a source that
-- cannot be read keeps nothing from the others.
local UNKNOWN_QUEUE, LONGEST_WAIT, DUTY = 'unknown', 3653 * 86400 * 1000000, 1000000 -- ten years, a second
local EPITAPHS = {
  garbage = '{"reason":"garbage","error":"not a task: neither this item nor its source names a queue"}',
  too_far_ahead = '{"reason":"too_far_ahead","error":"due in more than ten years: is its score in milliseconds? '
    .. 'A score is Unix time in seconds"}',
}
local now, name, limit = redis_now(), ARGV[1], tonumber(ARGV[2])
guard_places()
redis.call('SCARD', PREFIX .. 'queues')
local duty = has_duty(name, 'adopter', 'adopts_until', DUTY, now)

-- `routes`: a list `queue:NAME` that feeds another queue takes with it what is scheduled for NAME.
local sources, routes = {}, {}
for at = 3, #ARGV, 3 do
  local source = { key = ARGV[at], queue = ARGV[at + 1], task = ARGV[at + 2], taken = 0, left = 0, fault = '' }
  sources[#sources + 1] = source
  local old = string.match(source.key, '^queue:(.+)$')
  if old and source.queue ~= '' then routes[old] = source.queue end
end

-- The answer of a command about a source; nil when it was refused, which is noted.
local function ask(source, command, ...)
  local answer = redis.pcall(command, source.key, ...)
  if type(answer) ~= 'table' or not answer.err then return answer end
  source.fault = answer.err
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

-- Of a sorted set: up to `most` members that are due, or that never will be, with their scores.
local function due_members(source, most)
  local found = ask(source, 'ZRANGE', '-inf', to_score(now), 'BYSCORE', 'LIMIT', 0, most, 'WITHSCORES') or {}
  local items = {}
  for i = 1, #found, 2 do
    local due = from_score(found[i + 1])
    if due <= now then items[#items + 1] = { text = found[i], due = due } end -- it is rounded: never early
  end
  if #items == most then return items end
  local far = ask(source, 'ZRANGE', source.too_far, '+inf', 'BYSCORE', 'LIMIT', 0, most - #items)
  for _, member in ipairs(far or {}) do items[#items + 1] = { text = member, due = now, reason = 'too_far_ahead' } end
  return items
end

-- Up to `most` items of a source, which has them no more.
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

-- A source with a task hands each item to it as its one argument; any other item says itself what is to be called.
local lanes, dead = {}, {}
local function become_task(source, item)
  local id, named
  if source.task == '' then id, named = bare_names(item.text) end
  local queue = source.queue ~= '' and source.queue or routes[named or ''] or named
  local text = source.task == '' and item.text or '["' .. source.task .. '",[' .. item.text .. ']]'
  local kind = source.kind == 'list' and 'i' or 'd'
  local e = adopt(text, id, queue or UNKNOWN_QUEUE, kind, item.due, now)
  local reason = item.reason or not queue and 'garbage'
  local key = lane_of(e.queue, kind)
  lanes[key] = lanes[key] or { queue = e.queue, usable = is_list(key), texts = {} }
  if reason or not lanes[key].usable then
    bury(e, EPITAPHS[reason] or UNUSABLE, now)
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

local told = {}
for _, source in ipairs(sources) do
  if source.kind == 'list' then
    source.left = ask(source, 'LLEN') or 0
  elseif source.kind == 'zset' then
    source.left = ask(source, 'ZCARD') or 0
    local first = ask(source, 'ZRANGE', 0, 0, 'WITHSCORES') or {}
    if first[2] then next_due = math.min(next_due, from_score(first[2])) end
  end
  told[#told + 1] = source.taken
  told[#told + 1] = source.left
  told[#told + 1] = source.fault
end
return { now, duty, next_due < math.huge and digits_of(next_due) or '', more, told, dead }
