#!lua flags=no-writes
-- Return the next claims in order. The script runs `turn` repeatedly over a copy of the data, each time for a worker
-- that holds no task. It assumes that in the meantime no task is enqueued, becomes due, or ends.
-- All shared files of `turn` are listed here, even those that it includes only where needed. Otherwise the function
-- `turn` would have more than 60 upvalues, which Lua does not allow.
-- with: copy prefix clock entry doorbell counters in_use incarnations legacy_item task_events waiters following settle
-- with: tiers rotation bounds claim
-- taking along: turn
-- sets: decisions
-- KEYS[1]  tasks
-- ARGV
--   turn         arguments of a turn: an owner that does not exist, limit 1, no held tasks, no outcomes, the tiers
--   queue_asked  a queue to report in any case, or ''
--   most         maximum number of claims
-- keys     closed conditions counts dead delayed doorbell doorbell:* ends ends-sealed ends-untold ends:* epitaphs
--          events events-on former group-members:* group:* groups idle inflight:* keys members meta owners patterns
--          paused progress queue:* queues rates ready replies:* result:* rotation served tasks tickets times:* totals
--          turns:* unique:* waiters
-- returns  now in microseconds; 0|1 whether the list of claims is complete or has `most` claims (0 if the script
--          stopped early because it had done too much work); (entry, task name) per claim; then a row for each queue
--          that is claimed from and, up to 100 in total, for other queues with entries:
--     queue, tier, cost, cap, interval in microseconds
--     before these claims: number of entries, number of running entries, virtual time
--     after these claims: number of entries; 0|1 whether the queue is open; microseconds until its rate allows a start
--       (0 if the rate does not delay it); 0|1 paused; its condition or ''; 0|1 whether the condition closes it; the
--       time in microseconds at which the condition opens it, if known, otherwise 0; the error of the condition or ''
local MOST_ROWS, MOST_WORK = 100, 50000
local most, queue_asked = tonumber(ARGV[#ARGV]), ARGV[#ARGV - 1]
local now = redis_now()

-- Run one turn. Return its claim (entry and body, or nothing) and for how long a rate limit delays the next claim.
local function claim()
  local reply
  decisions = {} -- conditions depend on counts, which the previous claim has changed
  repeat reply = turn() until reply[1] ~= 'more' or work > MOST_WORK
  return reply[5], reply[3]
end

local function claims_in_order()
  local claims = {}
  while #claims < 2 * most and work <= MOST_WORK do
    local claimed = claim()
    if #claimed == 0 then return claims, true end
    claims[#claims + 1] = claimed[1]
    claims[#claims + 1] = name_in(claimed[2])
  end
  return claims, #claims == 2 * most
end

-- Register the owner in the copy, because a turn claims only for registered owners.
redis.call('ZADD', PREFIX .. 'owners', '1', ARGV[1])
local claims, is_all = claims_in_order()
local domains = read_tiers(tiers_at) -- the tiers that the turns use

-- The queues to report, with the tiers and settings with which they are served.
local queues, known = {}, {}
local function add_queue(tier, queue)
  if known[queue] then return end
  known[queue] = true
  queues[#queues + 1] = { tier = tier, share = share_in(domains[tier], queue) }
end

local function add_served(queue)
  for tier, domain in ipairs(domains) do
    if share_of({ domain }, queue) then return add_queue(tier, queue) end
  end
end

-- Return the queues of a domain. If the domain has patterns, these are the queues that are marked or have a turn in it.
local function queues_of(domain)
  local found = {}
  if not domain.has_patterns then
    for index = domain.first, domain.last do found[#found + 1] = ARGV[index] end
    return found
  end
  local members = server.call('ZRANGE', turns_key(domain.name), MARK, '+inf', 'BYSCORE', 'LIMIT', 0, MOST_ROWS)
  for _, member in ipairs(members) do
    local queue = string.match(member, '^%d+ %d+ (.*)$') or member
    if served_as(domain.settings, queue) then found[#found + 1] = queue end
  end
  return found
end

local function find_queues()
  if queue_asked ~= '' then add_served(queue_asked) end
  for i = 1, #claims, 2 do add_served(parse_entry(claims[i]).queue) end
  for tier, domain in ipairs(domains) do
    for _, queue in ipairs(queues_of(domain)) do
      if #queues < MOST_ROWS and entries_in(queue) > 0 then add_queue(tier, queue) end
    end
  end
end

local function entries_before(queue)
  local ready, delayed = server.pcall('LLEN', ready_lane(queue)), server.pcall('LLEN', delayed_lane(queue))
  return (type(ready) == 'number' and ready or 0) + (type(delayed) == 'number' and delayed or 0)
end

-- Return whether a turn that serves only this queue could claim from it, and for how long the rate delays the next
-- start. The condition is not considered. A queue without limits is open, and so is a queue whose entries all belong to
-- cancelled tasks.
local function check_room(share, paused)
  if share.cap == 0 and share.interval == 0 and not paused then return true, 0 end
  local unconditional = setmetatable({ condition = false }, { __index = share })
  local settings = ' ' .. share.queue .. '=' .. share_text(unconditional)
  for i, arg in ipairs({ 1, 'alone', settings, 1, share.queue }) do ARGV[tiers_at + i - 1] = arg end
  local claimed, wait = claim()
  return #claimed > 0 or entries_in(share.queue) == 0, wait
end

-- Return when a condition of the kind `hours` opens next. Return 0 for other conditions, and if the masters have
-- published no such time.
local function opens_at(condition)
  local text = redis.pcall('HGET', CONDITIONS, condition)
  if type(text) ~= 'string' or not string.find(text, '^%d+ hours ') then return 0 end
  for from in string.gmatch(text, ' (%d+)-%d+') do
    if tonumber(from) > now then return tonumber(from) end
  end
  return 0
end

local function row_of(tier, share)
  local condition, left = share.condition, entries_in(share.queue)
  local times, _, field = fields_of(share)
  local before = {
    share.queue, tier, share.cost, share.cap, share.interval, entries_before(share.queue),
    server.call('HGET', PREFIX .. 'counts', 'running:' .. share.queue) or '', server.call('HGET', times, field) or '',
  }
  decisions = {}
  local decision = condition and decision_on(share.queue, condition, now) or { open = true }
  local paused = redis.call('SISMEMBER', PREFIX .. 'paused', share.queue)
  local has_room, wait = check_room(share, paused == 1)
  local after = {
    left, has_room and decision.open and 1 or 0, wait, paused, condition or '', decision.open and 0 or 1,
    decision.open and 0 or opens_at(condition), decision.fault or '',
  }
  for _, value in ipairs(after) do before[#before + 1] = value end
  return before
end

find_queues()
local rows = {}
for i, queue in ipairs(queues) do rows[i] = row_of(queue.tier, queue.share) end
return { now, is_all and 1 or 0, claims, rows }
