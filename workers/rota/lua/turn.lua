#!lua flags=allow-oom
-- One round trip of a worker: settle what ended, then claim what is next.
-- with: prefix clock entry doorbell books in_use former news waiters following settle tiers rotation planning
-- KEYS[1]  tasks
-- ARGV     owner, limit, picks, the entry for which it empties its hands or '', n, n ids held (-1 for n: all claims were
--          answered, so they need not be named; -t the same, and from Redis time t on nothing is claimed), n, n queues whose
--          token it swallowed, limits of queues (` QUEUE=LIMIT`...), n, the lines of so many that are done (as in
--          shared/ends.lua), n, n x (entry verb first second), tiers
-- returns  word, now, wait us, stale entries, (entry, body)..., entries dropped as cancelled, and behind `alone` an entry
--   ok     the claims: up to `limit` entries of one queue; with several picks as many entries as so many turns would claim
--          one by one. With fewer than picks there is nothing more that may be claimed now
--   plenty the same of one pick, and so much is left that this worker may claim ahead
--   alone  as `ok`, and nothing more while this owner holds anything: that entry has to run alone, be it held or next
--   again  what the in-flight list holds and the worker did not name: the answer that told it was lost
--   lost   the owner is not registered; what it settled counted, it may claim nothing. Or its list was overwritten by
--          something else: nothing counted
--   more   500 things were looked at, and picks are left, or it came too late to claim; call again at once with the same tokens
-- Invariant: only a registered owner's list grows; each outcome is gated on its entry being in that list.
local EXAMINE = 500
local now = redis_now()
local owner, limit, left, awaited = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local several = left > 1
local inflight = PREFIX .. 'inflight:' .. owner
local at = 5

local function read_list()
  local list, size = {}, tonumber(ARGV[at])
  for i = 1, size do list[i] = ARGV[at + i] end
  at = at + 1 + math.max(size, 0)
  return list
end
local claim_by = -tonumber(ARGV[at])
local names_held = claim_by <= 0
local held, tokens = read_list(), read_list()
local limits = ARGV[at]
local plain_count, plain = tonumber(ARGV[at + 1]), ARGV[at + 2]
local settlements, settlements_at = tonumber(ARGV[at + 3]), at + 4
local domains = read_tiers(settlements_at + settlements * 4)

local registered = redis.call('ZSCORE', PREFIX .. 'owners', owner)
if registered and settlements + plain_count + #tokens == 0 and is_nothing_there(domains, inflight) then
  return { 'ok', now, 0, {}, {}, {} } -- as behind a doorbell at which nobody rang
end

-- Guards, before the first write: what any turn may write, and what only an end other than `done` does.
local holding = redis.pcall('LLEN', inflight)
local has_list = type(holding) == 'number'
redis.call('HLEN', PREFIX .. 'tasks')
redis.call('HLEN', PREFIX .. 'keys')
redis.call('SCARD', PREFIX .. 'ready')
guard_rotation(domains)
local bounds -- of the queues that have any
for _, domain in ipairs(domains) do
  if domain.settings ~= '' then -- caps and conditions go by the one, a rate limit is kept in the other
    redis.call('HLEN', PREFIX .. 'counts')
    redis.call('HLEN', PREFIX .. 'rates')
    bounds = bounds or make_bounds(now)
  end
end
local goes_anywhere = any_members -- as what follows may
for verb_at = settlements_at + 1, settlements_at + settlements * 4, 4 do
  goes_anywhere = goes_anywhere or ARGV[verb_at] ~= 'done'
end
if goes_anywhere then guard_places() end

-- How many entries of this queue to claim at once, where any may start. Where starts are bounded they are claimed one at a
-- time: unstarted entries would take the room of other workers. All picks that are left may go to a queue that has no
-- rivals.
local function most_of(share, has_rivals)
  if several and has_rivals then return 1 end
  if several then return math.min(left, share.is_bounded and bounds.room_one_by_one(share) or left) end
  if share.is_bounded and bounds.go_by_starts(share) then return math.min(math.max(limit, 1), (bounds.room(share))) end
  local own_at = value_of(limits, share.name)
  return math.max(own_at and tonumber(string.match(limits, '^%d+', own_at)) or limit, 1)
end

-- Settle.
local stale, settled, released, to_ring = {}, {}, {}, {}
if any_members then
  -- This turn may claim what follows, and rings if it does not. Of a queue that is shut for now others are to learn.
  following.ring = function(queue)
    local share = share_of(domains, queue)
    if not share or share.is_bounded then return ring_if_served(queue) end
    to_ring[queue] = true
    if any_patterns then mark(queue) end
  end
end
if has_list then stale, settled, released = settle(owner, settlements_at, settlements, now, plain_count, plain) end
for queue, ended in pairs(settled) do
  holding = holding - ended
  count_later('running:' .. queue, -ended)
  local share = (bounds or released[queue]) and share_of(domains, queue)
  credit(share, released[queue] or 0)
  if released[queue] or (share and (share.cap > 0 or share.condition)) then
    to_ring[queue] = true
    if any_patterns and entries_in(queue) > 0 then mark(queue) end
  end
end
if bounds then write_counts() end -- they go by what runs

-- Ring where entries are left that somebody could take: never for a queue that is paused or has no room, or
-- woken workers would wake each other for nothing without end.
local has_more = {} -- of the queues that were claimed from
local function pass_on(queue)
  if any_patterns and is_pattern(queue) then return pass_on_in_turn(domains, queue) end
  if has_more[queue] == nil then has_more[queue] = entries_in(queue) > 0 end
  if not has_more[queue] or paused(queue) then return end
  local share = share_of(domains, queue)
  if share and share.is_bounded and bounds.keep_shut(share) then return end
  ring_bells(queue)
end

local function answer(word, claims, dropped, alone)
  if word ~= 'more' then
    for _, queue in ipairs(tokens) do to_ring[queue] = true end
  end
  for queue in pairs(to_ring) do pass_on(queue) end
  write_counts()
  local wait = left > 0 and not alone and bounds and bounds.wait() or 0 -- for an entry that runs alone nothing else is awaited
  return { word, now, wait, stale, claims, dropped, alone }
end

if not registered or not has_list then
  -- It may have died at a doorbell, and this turn, sent along, is all that still tells of the token it took.
  each_queue(domains, function(queue) to_ring[queue] = true end)
  return answer('lost', {}, {})
end

-- What the list holds and the worker did not name.
local alone -- the entry that has to run so
if holding == 1 and not names_held then
  local text = redis.call('LINDEX', inflight, 0) -- what has to run alone has no neighbours
  alone = select(2, glance(text)) and text or nil
elseif holding > 0 and names_held then
  local named, claims = {}, {}
  for _, id in ipairs(held) do named[id] = true end
  for _, text in ipairs(redis.call('LRANGE', inflight, 0, -1)) do
    local e = parse_entry(text)
    if e and e.crashes + e.losses > 0 then alone = text end
    if not e then
      holding = holding - 1 -- no entry: `retire` will set it aside
    elseif not named[e.id] then
      local is_former = any_former and is_shell(e.id, e.flag)
      claims[#claims + 1] = text
      claims[#claims + 1] = not is_former and redis.call('HGET', PREFIX .. 'tasks', e.id) or ''
    end
  end
  if #claims > 0 then return answer('again', claims, {}) end
end
if limit <= 0 then return answer('ok', {}, {}) end
if claim_by > 1 and now >= claim_by then return answer('more', {}, {}) end -- as what waits behind a long task may have been recalled
if alone then return answer('alone', {}, {}, alone) end

-- Bare items are adopted: what that takes is made when the first one is met.
local adopt_bare
local function make_adoption()
  -- with: adopt
  return function(text, queue, kind) return adopt(text, (bare_names(text)), queue, kind, now, now) end
end

-- Claim: entries of one lane, until there are `most`, the lane is empty, or enough was looked at.
local word, examined, claims, texts, dropped = 'ok', 0, {}, {}, {}

-- Take what lies at the head of a lane; returns how many left it, and whether one came that has to run alone: an entry
-- with a crash or a loss on record does, so that the guilty one is found without its neighbours. It ends the claim, and
-- whoever holds others claims nothing more, so that its hands will be empty for it.
local function take_head(queue, kind, lane_texts)
  local ids, suspicious = glance_at_all(lane_texts)
  local taken, bodies = #texts, redis.call('HMGET', PREFIX .. 'tasks', unpack(ids))
  for i = 1, #lane_texts do
    local text, body, id = lane_texts[i], bodies[i], ids[i]
    if not body or body == '' or id == '' or suspicious[i] or any_former then
      local live = body and id ~= ''
      -- The shell of a former life was counted as cancelled when the next one began.
      local gone = any_former and id ~= '' and is_shell(id, flag_of(text), true)
      if live and not gone and suspicious[i] and body ~= '' then alone = text end
      if alone and taken + holding > 0 then return i - 1, true end
      if gone or live and body == '' then
        if not gone then take_off(id, flag_of(text), 'cancelled') end -- its end was noted when it was cancelled
        dropped[#dropped + 1] = text
        body = nil
      elseif not live then
        local e
        adopt_bare = adopt_bare or make_adoption()
        e, body = adopt_bare(text, queue, kind)
        text = entry_text(e)
      end
    end
    if body then
      taken = taken + 1
      texts[taken], claims[2 * taken - 1], claims[2 * taken] = text, text, body
    end
    if alone then return i, true end
  end
  return #lane_texts, false
end

-- Take from a lane; returns how many entries are left there, and whether the claim is over.
local function take(queue, lane, kind, most)
  local size = length(lane)
  while size > 0 and #texts < most and examined < EXAMINE do
    local lane_texts = redis.call('LRANGE', lane, '0', math.min(most - #texts, EXAMINE - examined) - 1)
    local popped, is_over = take_head(queue, kind, lane_texts)
    redis.call('LTRIM', lane, popped, '-1')
    size, examined = size - popped, examined + #lane_texts
    if is_over then return size, true end
  end
  return size, false
end

-- Whether this call goes on: picks are left, and nothing stands in the way of the next.
local function goes_on()
  if left > 0 and (alone or examined >= EXAMINE) then word = alone and 'alone' or 'more' end
  return left > 0 and word == 'ok'
end

-- Whether a worker that has claimed from here may claim the next task before it runs this one: so much is left that nobody is
-- idle for it, nothing ranks above that would have to wait for both, and what is bounded loses no room to a task that waits.
local function is_plenty(share, rest)
  local first, for_each = domains[1], 4
  if several or alone or rest < for_each or share.domain ~= first.name then return false end
  for cap, interval, condition in string.gmatch(first.settings, '=%d+ (%d+) (%d+) %d+(:?)') do
    if cap ~= '0' or interval ~= '0' or condition ~= '' then return false end
  end
  return rest >= for_each * redis.call('ZCARD', PREFIX .. 'owners')
end

-- Claim up to n entries of a queue, of its ready lane when the delayed one has no more; returns whether there are more.
local function claim_from(share, n)
  local queue, before = share.queue, #texts
  local rest, is_over = take(queue, delayed_lane(queue), 'd', before + n)
  if not is_over and #texts < before + n then
    rest = rest + take(queue, ready_lane(queue), 'i', before + n)
  elseif rest == 0 then
    rest = length(ready_lane(queue))
  end
  has_more[queue] = rest > 0
  if rest > 0 then
    to_ring[share.name] = true
  else
    redis.call('SREM', PREFIX .. 'ready', queue)
    if share.place then leave_turns(share.domain, share.place) end
  end
  local taken = #texts - before
  if taken == 0 then return rest > 0 end
  if is_plenty(share, rest) then word = 'plenty' end
  left = left - (several and taken or 1)
  redis.call('RPUSH', inflight, unpack(texts, before + 1))
  count_later('running:' .. queue, taken)
  if bounds then write_counts() end
  charge(share, taken, several)
  if share.is_bounded then bounds.spend_rate(share, taken) end
  if share.condition then redis.pcall('HDEL', CLOSED, queue) end
  if several then verdicts[queue] = nil end -- what runs may decide a condition
  return rest > 0
end

-- With patterns.
local claim_in_turn
if any_patterns then
  -- Claim from the queue at a place, or shut it.
  local function claim_at(domain, place, has_rivals)
    local share = share_at(domain, place)
    if not share then return end
    local untill = paused(share.queue) and SHUT or bounds.shut_until(share)
    if untill then return shut(domain, place, untill) end
    claim_from(share, most_of(share, has_rivals))
    to_ring[share.name] = true -- other queues of the pattern may have something
  end

  claim_in_turn = function(domain)
    local marks, places
    open_shut(domain, now)
    repeat
      marks = place_marks(domain)
      places = next_in_turn(domain, several and 2 or 1)
      examined = examined + marks + 1
      if places[1] then claim_at(domain, places[1], #places + marks > 1) end
    until not goes_on() or not places[1] and marks == 0
    local opens_at = goes_on() and next_opening(domain)
    if opens_at then bounds.look_again(math.max(1, opens_at - now)) end
  end
end

local claim_planned = several and not any_former and make_planner(inflight, bounds, to_ring, has_more, texts, claims)
local function claim_in_order()
  for _, domain in ipairs(domains) do
    if domain.has_patterns then claim_in_turn(domain) end
    local places = domain.has_patterns and {} or candidates(domain, bounds)
    while #places > 0 and goes_on() do
      local found, looked = 0, 0
      -- For few picks it would cost more to read what lies at the head of every rival.
      if claim_planned and #places > 1 and #places <= 2 * left then found, looked = claim_planned(domain, places, left) end
      left = left - found
      if found > 0 then
        places = candidates(domain, bounds)
      else
        local i = next_in_rotation(domain, places)
        local share = share_in(domain, ARGV[places[i]])
        local is_left = claim_from(share, most_of(share, #places > 1))
        local is_shut = left > 0 and share.is_bounded and not bounds.has_room(domain, places[i])
        if is_shut or not is_left then table.remove(places, i) end
      end
      examined = examined + looked -- behind the claim, which would find no room for it: it gets on whatever was looked at
    end
    if not goes_on() then return end
  end
end

-- It was told before that this entry has to run alone. While it lies first in its queue nothing else is claimed, and it is when
-- nothing is held: its turn had come.
if awaited ~= '' then
  local _, queue = names_in(awaited)
  local share = queue and share_of(domains, queue)
  local lane = queue and length(delayed_lane(queue)) > 0 and delayed_lane(queue) or ready_lane(queue or '')
  local is_first = length(lane) > 0 and redis.call('LINDEX', lane, 0) == awaited
  local is_open = share and not paused(queue) and not (share.is_bounded and bounds.shut_until(share))
  if is_first and is_open then claim_from(share, 1) end
end
if goes_on() then claim_in_order() end
if goes_on() and mark_unmarked(domains) then claim_in_order() end
if tell_waiters and #texts > 0 then
  -- with: lists
  tell_waiters('started', ids_in(texts))
end
for i, text in ipairs(tell and texts or {}) do
  tell('started', text, owner, task_in(claims[2 * i]), 1, 'lag_us', now - parse_entry(text).due)
end
return answer(word, claims, dropped, word == 'alone' and alone or nil)
