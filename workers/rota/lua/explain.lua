#!lua flags=no-writes
-- The next claims in their order, as the turn makes them: it is run over a copy, again and again, each time for a
-- worker with nothing in hand. Nothing is enqueued, becomes due or ends between them.
-- with: copy prefix clock entry doorbell bare named tiers rotation condition
-- taking along: turn
-- KEYS[1]  tasks
-- ARGV
--   turn   the arguments of one: an owner that nobody is, limit 1, nothing held or to settle, the tiers
--   asked  a queue to report in any case, or ''
--   most   how many claims
-- keys     closed conditions counts dead delayed doorbell doorbell:* ends ends-sealed ends-untold ends:* epitaphs
--          events events-on former group-members:* group:* groups idle inflight:* keys members meta owners patterns
--          paused progress queue:* queues rates ready replies:* result:* rotation served tasks tickets times:* totals
--          turns:* unique:* waiters
-- returns  now, whether that was all 0|1 (0: it was too much work), (entry, name of the task)..., then a row for each
--          queue of which one is claimed and, up to 100, for others with entries: queue, tier, cost, cap, interval us,
--          and how it is before these claims: entries, running, virtual time; and behind them: entries left, whether
--          nothing shuts it 0|1, how long until its rate lets one through us (0: it holds none back), paused 0|1, its
--          condition or '', whether that keeps it closed 0|1, until when us if that is known, what is wrong with it
local TIERS_AT, MOST_ROWS, MOST_WORK = 13, 100, 50000
local most, asked = tonumber(ARGV[#ARGV]), ARGV[#ARGV - 1]
local domains, now = read_tiers(TIERS_AT), redis_now()

-- What a turn claims: an entry and a body, or nothing; and how long a rate limit holds the next one back.
local function claim()
  local answer
  verdicts = {} -- conditions go by counts, which the claim before has changed
  repeat answer = turn() until answer[1] ~= 'more' or work > MOST_WORK
  return answer[5], answer[3]
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

-- The queues to tell of, with the tiers and the shares by which they are served.
local queues, known = {}, {}
local function tell_of(tier, queue)
  if known[queue] then return end
  known[queue] = true
  queues[#queues + 1] = { tier = tier, share = share_in(domains[tier], queue) }
end

local function tell_of_served(queue)
  for tier, domain in ipairs(domains) do
    if share_of({ domain }, queue) then return tell_of(tier, queue) end
  end
end

-- Of a domain with patterns those that are marked or have a place there; of any other its names.
local function queues_of(domain)
  local found = {}
  if not domain.has_patterns then
    for place = domain.first, domain.last do found[#found + 1] = ARGV[place] end
    return found
  end
  local members = server.call('ZRANGE', turns_key(domain.name), MARK, '+inf', 'BYSCORE', 'LIMIT', 0, MOST_ROWS)
  for _, member in ipairs(members) do
    local queue = string.match(member, '^%d+ %d+ (.*)$') or member
    if served_as(domain.settings, queue) then found[#found + 1] = queue end
  end
  return found
end

local function find_queues(claims)
  if asked ~= '' then tell_of_served(asked) end
  for i = 1, #claims, 2 do tell_of_served(parse_entry(claims[i]).queue) end
  for tier, domain in ipairs(domains) do
    for _, queue in ipairs(queues_of(domain)) do
      if #queues < MOST_ROWS and entries_in(queue) > 0 then tell_of(tier, queue) end
    end
  end
end

local function entries_before(queue)
  local ready, delayed = server.pcall('LLEN', ready_lane(queue)), server.pcall('LLEN', delayed_lane(queue))
  return (type(ready) == 'number' and ready or 0) + (type(delayed) == 'number' and delayed or 0)
end

-- Whether nothing but its condition keeps a turn from claiming of this queue, and how long its rate does: a turn that
-- serves no other queue says so. What nothing can shut is open, and so is one with cancelled tasks and no others.
local function look_at(share, paused)
  if share.cap == 0 and share.interval == 0 and not paused then return true, 0 end
  local numbers = string.format('%.0f %.0f %.0f %.0f', share.cost, share.cap, share.interval, share.burst)
  local settings = ' ' .. share.queue .. '=' .. numbers
  for i, word in ipairs({ 1, 'alone', settings, 1, share.queue }) do ARGV[TIERS_AT + i - 1] = word end
  local claimed, wait = claim()
  return #claimed > 0 or entries_in(share.queue) == 0, wait
end

-- When a condition that goes by hours opens next; 0 when it goes by other things, or nobody has told so far ahead.
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
  verdicts = {}
  local verdict = condition and verdict_on(share.queue, condition, now) or { open = true }
  local paused = redis.call('SISMEMBER', PREFIX .. 'paused', share.queue)
  local has_room, wait = look_at(share, paused == 1)
  local behind = {
    left, has_room and verdict.open and 1 or 0, wait, paused, condition or '', verdict.open and 0 or 1,
    verdict.open and 0 or opens_at(condition), verdict.fault or '',
  }
  for _, value in ipairs(behind) do before[#before + 1] = value end
  return before
end

redis.call('ZADD', PREFIX .. 'owners', '1', ARGV[1]) -- in the copy: a turn claims for registered owners only
local claims, is_all = claims_in_order()
find_queues(claims)
local rows = {}
for i, queue in ipairs(queues) do rows[i] = row_of(queue.tier, queue.share) end
return { now, is_all and 1 or 0, claims, rows }
