#!lua flags=no-writes
-- The next claims in their order, as the turn makes them: it is run over a copy, again and again, each time for a worker
-- with nothing in hand. Nothing is enqueued, becomes due or ends between them.
-- with: prefix copy bare named
-- over the copy: turn
-- KEYS[1]  tasks
-- ARGV     those of a turn: an owner that nobody is, limit 1, nothing in hand, no tokens, no limits of queues, nothing to
--          settle, tiers; behind these a queue to be told of in any case, or '', and how many claims
-- returns  now, whether that was all 0|1 (0: it was too much work), (entry, name of the task)..., then a row for each queue
--          that has entries, 500 at most: queue, tier, cost, cap, interval us, and how it is before these claims: entries,
--          running, virtual time; and after them: entries left, whether nothing shuts it 0|1, how long until its
--          rate lets one through us (0: it holds none back), paused 0|1, its condition or '', whether that keeps it closed
--          0|1, until when us if that is known, what is wrong with it
local TIERS_AT, MOST_ROWS, MOST_WORK = 7, 500, 50000
local most, asked = tonumber(ARGV[#ARGV]), ARGV[#ARGV - 1]
local queues = {}

local function hash_number(key, field) return redis.call('HGET', PREFIX .. key, field) or '' end

-- The queues with something to claim, as they are before the first claim.
local function note_queues(domains)
  for tier, domain in ipairs(domains) do
    for place = domain.first, domain.last do
      local share = share_at(domain, place)
      local entries = entries_in(share.queue)
      if #queues < MOST_ROWS and (entries > 0 or share.queue == asked) then
        queues[#queues + 1] = {
          share = share, tier = tier, settings = domain.settings, entries = entries,
          running = hash_number('counts', 'running:' .. share.queue),
          time = hash_number('rotation', domain.name .. ' ' .. share.queue),
        }
      end
    end
  end
end

-- What a turn claims: an entry and a body, or nothing; and how long a rate limit holds the next one back.
local function claim()
  local answer
  verdicts = {} -- of the counts as they were
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

-- Whether nothing but its condition keeps a turn from claiming of this queue, and how long its rate does: a turn that
-- serves no other queue says so. What nothing can shut is open, and so is one with cancelled tasks and no others.
local function look_at(queue, paused)
  local share = queue.share
  if share.cap == 0 and share.interval == 0 and not paused then return true, 0 end
  ARGV[TIERS_AT], ARGV[TIERS_AT + 1], ARGV[TIERS_AT + 2] = 1, share.domain, string.gsub(queue.settings, ':%S+', '')
  ARGV[TIERS_AT + 3], ARGV[TIERS_AT + 4] = 1, share.queue
  local claimed, wait = claim()
  return #claimed > 0 or entries_in(share.queue) == 0, wait
end

-- When a condition that goes by hours opens next; 0 when it goes by other things, or nobody has told so far ahead.
local function opens_at(condition, now)
  local text = redis.pcall('HGET', CONDITIONS, condition)
  if type(text) ~= 'string' or not string.find(text, '^%d+ hours ') then return 0 end
  for from in string.gmatch(text, ' (%d+)-%d+') do
    if tonumber(from) > now then return tonumber(from) end
  end
  return 0
end

local function row_of(queue, now)
  local share, condition = queue.share, queue.share.condition
  local paused = redis.call('SISMEMBER', PREFIX .. 'paused', share.queue)
  queue.left = entries_in(share.queue)
  verdicts = {}
  local verdict = condition and verdict_on(share.queue, condition, now) or { open = true }
  local has_room, wait = look_at(queue, paused == 1)
  return {
    share.queue, queue.tier, share.cost, share.cap, share.interval, queue.entries, queue.running, queue.time,
    queue.left, has_room and verdict.open and 1 or 0, wait, paused, condition or '', verdict.open and 0 or 1,
    verdict.open and 0 or opens_at(condition, now), verdict.fault or '',
  }
end

redis.call('ZADD', PREFIX .. 'owners', '1', ARGV[1]) -- in the copy: a turn claims for registered owners only
note_queues(read_tiers(TIERS_AT))
local claims, is_all = claims_in_order()
local now, rows = redis_now(), {}
for i, queue in ipairs(queues) do rows[i] = row_of(queue, now) end
return { now, is_all and 1 or 0, claims, rows }
