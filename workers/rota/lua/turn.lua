#!lua flags=allow-oom
-- One round trip of a worker: settle what ended, then claim what is next.
-- with: prefix clock entry doorbell lists books in_use former bare news waiters following settle adopt tiers rotation bounds
-- KEYS[1]  tasks
-- ARGV     owner, limit, n, n ids held, n, n queues whose token it swallowed, limits of queues (` QUEUE=LIMIT`...),
--          n, the lines of so many that are done (as in shared/ends.lua), n, n x (entry verb first second), tiers
-- returns  word, now, wait us, stale entries, (entry, body)..., entries dropped as cancelled
--   ok     the claims, all of one queue, perhaps none
--   again  what the in-flight list holds and the worker did not name: the answer that told it was lost
--   lost   the owner is not registered; what it settled counted, it may claim nothing. Or its list was overwritten by
--          something else: nothing counted
--   more   500 things were looked at; call again at once with the same tokens
-- Invariant: only a registered owner's list grows; each outcome is gated on its entry being in that list.
local EXAMINE = 500
local now = redis_now()
local owner, limit = ARGV[1], tonumber(ARGV[2])
local inflight = PREFIX .. 'inflight:' .. owner
local at = 3

local function read_list()
  local list, size = {}, tonumber(ARGV[at])
  for i = 1, size do list[i] = ARGV[at + i] end
  at = at + 1 + size
  return list
end
local held, tokens = read_list(), read_list()
local limits = ARGV[at]
local plain_count, plain = tonumber(ARGV[at + 1]), ARGV[at + 2]
local settlements, settlements_at = tonumber(ARGV[at + 3]), at + 4
local domains = read_tiers(settlements_at + settlements * 4)

-- Guards, before the first write: what any turn may write, and what only an end other than `done` does.
local registered = redis.call('ZSCORE', PREFIX .. 'owners', owner)
local holding = redis.pcall('LLEN', inflight)
local has_list = type(holding) == 'number'
redis.call('HLEN', PREFIX .. 'tasks')
redis.call('HLEN', PREFIX .. 'keys')
redis.call('SCARD', PREFIX .. 'ready')
redis.call('HLEN', PREFIX .. 'rotation')
if any_patterns then guard_turns(domains) end
local bounds -- of the queues that have any
for _, domain in ipairs(domains) do
  if domain.settings ~= '' then -- caps and conditions go by the one, a rate limit is kept in the other
    redis.call('HLEN', PREFIX .. 'counts')
    redis.call('HLEN', PREFIX .. 'rates')
    bounds = bounds or make_bounds(now)
  end
end
if any_members then guard_places() end
for verb_at = settlements_at + 1, settlements_at + settlements * 4, 4 do
  if ARGV[verb_at] ~= 'done' then
    guard_places()
    break
  end
end

local function paused(queue)
  return any_paused and redis.call('SISMEMBER', PREFIX .. 'paused', queue) == 1
end

-- How many entries of this queue to claim at once, where any may start. Where starts are bounded they are claimed one at a
-- time: unstarted entries would take the room of other workers.
local function most_of(share)
  if share.is_bounded and bounds.go_by_starts(share) then return math.min(math.max(limit, 1), (bounds.room(share))) end
  local own_at = value_of(limits, share.name)
  return math.max(own_at and tonumber(string.match(limits, '^%d+', own_at)) or limit, 1)
end

-- Settle.
local stale, by_queue, to_ring = {}, {}, {}
if any_members then
  ring_for_following = function(queue) -- this turn may claim what follows
    to_ring[queue] = true
    if any_patterns then mark(queue) end
  end
end
if has_list then stale, by_queue = settle(owner, settlements_at, settlements, now, plain_count, plain) end
for queue, of in pairs(by_queue) do
  holding = holding - of.settled
  local share = share_of(domains, queue)
  credit(share, of.released)
  if of.released > 0 or (share and (share.cap > 0 or share.condition)) then
    to_ring[queue] = true
    if any_patterns and entries_in(queue) > 0 then mark(queue) end
  end
end

-- Ring where entries are left that somebody could take: never for a queue that is paused or has no room, or
-- woken workers would wake each other for nothing without end.
local wait = 0
local function pass_on(queue)
  if any_patterns and is_pattern(queue) then return pass_on_in_turn(domains, queue) end
  if paused(queue) or entries_in(queue) == 0 then return end
  local share = share_of(domains, queue)
  if share and share.is_bounded and bounds.keep_shut(share) then return end
  ring_bells(queue)
end

local function answer(word, claims, dropped)
  if word ~= 'more' then
    for _, queue in ipairs(tokens) do to_ring[queue] = true end
  end
  for queue in pairs(to_ring) do pass_on(queue) end
  return { word, now, wait, stale, claims, dropped }
end

if not registered or not has_list then
  -- It may have died at a doorbell, and this turn, sent along, is all that still tells of the token it took.
  each_queue(domains, function(queue) to_ring[queue] = true end)
  return answer('lost', {}, {})
end

-- What the list holds and the worker did not name.
local holding_suspicious = false
if holding > 0 then
  local named, claims = {}, {}
  for _, id in ipairs(held) do named[id] = true end
  for _, text in ipairs(redis.call('LRANGE', inflight, 0, -1)) do
    local id, suspicious = glance(text)
    if id and suspicious then holding_suspicious = true end
    if not id then
      holding = holding - 1 -- no entry: `retire` will set it aside
    elseif not named[id] then
      local is_former = any_former and is_shell(id, flag_of(text))
      claims[#claims + 1] = text
      claims[#claims + 1] = not is_former and redis.call('HGET', PREFIX .. 'tasks', id) or ''
    end
  end
  if #claims > 0 then return answer('again', claims, {}) end
end
if limit <= 0 or holding_suspicious then return answer('ok', {}, {}) end

-- Claim: entries of one lane, until `n` are taken, the lane is empty, or enough was looked at.
local examined, claims, texts, dropped = 0, {}, {}, {}

-- Take what lies at the head of a lane; returns how many left it, and whether the last one has to run alone: an entry
-- with a crash or a loss on record does, so that the guilty one is found without its neighbours.
local function take_head(queue, kind, lane_texts)
  local ids, suspicious = {}, {}
  for i, text in ipairs(lane_texts) do
    local id, is_suspicious = glance(text)
    ids[i], suspicious[i] = id or '', is_suspicious
  end
  for i, body in ipairs(redis.call('HMGET', PREFIX .. 'tasks', unpack(ids))) do
    local text = lane_texts[i]
    local live = body and ids[i] ~= ''
    -- The shell of a former life was counted as cancelled when the next one began.
    local gone = any_former and ids[i] ~= '' and is_shell(ids[i], flag_of(text), true)
    local alone = live and not gone and suspicious[i] and body ~= ''
    if alone and #texts + holding > 0 then return i - 1, true end
    if gone or live and body == '' then
      if not gone then take_off(ids[i], flag_of(text), 'cancelled') end -- its end was noted when it was cancelled
      dropped[#dropped + 1] = text
    else
      if not live then
        local e
        e, body = adopt(text, (bare_names(text)), queue, kind, now, now)
        text = entry_text(e)
      end
      texts[#texts + 1] = text
      claims[#claims + 1] = text
      claims[#claims + 1] = body
    end
    if alone then return i, true end
  end
  return #lane_texts, false
end

-- Take from a lane; returns whether the claim may go on to the next lane.
local function take(queue, lane, kind, n)
  while #texts < n and examined < EXAMINE do
    local lane_texts = redis.pcall('LRANGE', lane, 0, math.min(n - #texts, EXAMINE - examined) - 1)
    if lane_texts.err or #lane_texts == 0 then return true end
    local popped, alone = take_head(queue, kind, lane_texts)
    redis.call('LTRIM', lane, popped, -1)
    examined = examined + #lane_texts
    if alone then return false end
  end
  return true
end

local function claim_from(share, n)
  if take(share.queue, delayed_lane(share.queue), 'd', n) and #texts < n then
    take(share.queue, ready_lane(share.queue), 'i', n)
  end
  if entries_in(share.queue) == 0 then
    redis.call('SREM', PREFIX .. 'ready', share.queue)
    if share.place then leave_turns(share.domain, share.place) end
  else
    to_ring[share.name] = true
  end
  if #texts == 0 then return end
  redis.call('RPUSH', inflight, unpack(texts))
  if tell_waiters then tell_waiters('started', ids_in(texts)) end
  count('running:' .. share.queue, #texts)
  charge(share, #texts)
  if share.is_bounded then bounds.spend_rate(share, #texts) end
  if share.condition then redis.pcall('HDEL', CLOSED, share.queue) end
  if tell then
    for i, text in ipairs(texts) do
      tell('started', text, owner, task_in(claims[2 * i]), 1, 'lag_us', now - parse_entry(text).due)
    end
  end
end

-- Whether entries of the queue at this place may start now; if a rate limit or a condition opens later, `wait` says when.
local function has_room(domain, place)
  if domain.settings == '' then return true end -- none of its queues has a cap, a rate limit or a condition
  local untill = bounds.shut_until(share_in(domain, ARGV[place]))
  if untill and untill < SHUT and (wait == 0 or untill - now < wait) and entries_in(ARGV[place]) > 0 then
    wait = untill - now
  end
  return not untill
end

-- The places of a domain's queues that are marked ready and may be served now.
local function candidates(domain)
  local places = {}
  for i, marked in ipairs(redis.call('SMISMEMBER', PREFIX .. 'ready', unpack(ARGV, domain.first, domain.last))) do
    local place = domain.first + i - 1
    if marked == 1 and not paused(ARGV[place]) and has_room(domain, place) then places[#places + 1] = place end
  end
  return places
end

-- With patterns.
local claim_in_turn
if any_patterns then
  -- Claim from the queue at a place, or shut it. Returns whether it is to be passed over by this call: what stands first
  -- in it has to be claimed alone, and others are held.
  local function claim_at(domain, place)
    local share = share_at(domain, place)
    if not share then return false end
    local untill = paused(share.queue) and SHUT or bounds.shut_until(share)
    if untill then
      shut(domain, place, untill)
      return false
    end
    claim_from(share, most_of(share))
    to_ring[share.name] = true -- other queues of the pattern may have something
    return #texts == 0 and entries_in(share.queue) > 0
  end

  local function note_opening(domain)
    local opens_at = next_opening(domain)
    local after = opens_at and math.max(1, opens_at - now)
    if after and (wait == 0 or after < wait) then wait = after end
  end

  claim_in_turn = function(domain)
    local passed, marks, place = 0, nil, nil
    open_shut(domain, now)
    repeat
      marks = place_marks(domain)
      place = next_in_turn(domain, passed)
      examined = examined + marks + 1
      if place and claim_at(domain, place) then passed = passed + 1 end
    until #texts > 0 or examined >= EXAMINE or not place and marks == 0
    if #texts == 0 and examined < EXAMINE then note_opening(domain) end
  end
end

local function claim_in_order()
  for _, domain in ipairs(domains) do
    if domain.has_patterns then claim_in_turn(domain) end
    local places = domain.has_patterns and {} or candidates(domain)
    while #places > 0 and #texts == 0 and examined < EXAMINE do
      local share = share_in(domain, ARGV[table.remove(places, next_in_rotation(domain, places))])
      claim_from(share, most_of(share))
    end
    if #texts > 0 or examined >= EXAMINE then return end
  end
end

-- A bare push does not mark its queue ready, so look at the lanes once before the worker sleeps.
local function mark_unmarked()
  local found = false
  each_queue(domains, function(queue)
    if entries_in(queue) > 0 and redis.call('SADD', PREFIX .. 'ready', queue) == 1 then
      if any_patterns then mark(queue) end
      found = true
    end
  end)
  return found
end

claim_in_order()
if #texts == 0 and examined < EXAMINE and mark_unmarked() then claim_in_order() end
return answer(#texts == 0 and examined >= EXAMINE and 'more' or 'ok', claims, dropped)
