#!lua flags=allow-oom
-- One round trip of a worker: settle what ended, then claim what is next.
-- with: prefix clock entry doorbell books in_use former news waiters following settle tiers rotation claim
-- KEYS[1]  tasks
-- ARGV
--   owner             the worker
--   limit             how many entries of one queue to claim, 0 for none
--   picks             how often a queue is chosen; with more than one each pick takes one entry
--   awaited           the entry for which it empties its hands, or ''
--   names_held        0|1: whether the ids that it holds follow; 0 when all claims were answered
--   claim_by          from this Redis time on nothing is claimed, us, 0 for never
--   held              how many ids it holds, and these
--   tokens            how many queues it swallowed the token of, and these
--   limits            of queues that have their own: ` QUEUE=LIMIT`...
--   plain_count       of how many done tasks lines follow
--   plain             their lines, as in shared/ends.lua
--   settlements       how many follow
--   entry, verb, first, second  so many x
--   domains           the tiers, see shared/tiers.lua
-- keys     closed conditions counts dead delayed doorbell doorbell:* ends ends-sealed ends-untold ends:* epitaphs
--          events events-on former group-members:* group:* groups idle inflight:* keys members meta owners patterns
--          paused progress queue:* queues rates ready replies:* result:* rotation served tasks tickets times:* totals
--          turns:* unique:* waiters
-- returns  word, now, wait us, stale entries, (entry, body)..., entries dropped as cancelled, and behind `alone` an
--          entry
--   ok     the claims: up to `limit` entries of one queue; with several picks as many entries as so many turns would
--          claim one by one. With fewer than picks there is nothing more that may be claimed now
--   plenty the same of one pick, and so much is left that this worker may claim ahead
--   alone  as `ok`, and nothing more while this owner holds anything: that entry has to run alone, be it held or next
--   again  what the in-flight list holds and the worker did not name: the answer that told it was lost
--   lost   the owner is not registered; what it settled counted, it may claim nothing. Or its list was overwritten by
--          something else: nothing counted
--   more   500 things were looked at, and picks are left, or it came too late to claim; call again at once with the
--          same tokens
-- Invariant: only a registered owner's list grows; each outcome is gated on its entry being in that list.
local now = redis_now()
local owner, limit, picks, awaited = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local names_held, claim_by = ARGV[5] == '1', tonumber(ARGV[6])
local inflight = PREFIX .. 'inflight:' .. owner
local at = 7

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

-- Settle.
local stale, settled, released, to_ring, has_more = {}, {}, {}, {}, {}
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
local function pass_on(queue)
  if any_patterns and is_pattern(queue) then return pass_on_in_turn(domains, queue) end
  if has_more[queue] == nil then has_more[queue] = entries_in(queue) > 0 end
  if not has_more[queue] or paused(queue) then return end
  local share = share_of(domains, queue)
  if share and share.is_bounded and bounds.keep_shut(share) then return end
  ring_bells(queue)
end

local function answer(word, claims, dropped, alone, wait)
  if word ~= 'more' then
    for _, queue in ipairs(tokens) do to_ring[queue] = true end
  end
  for queue in pairs(to_ring) do pass_on(queue) end
  write_counts()
  return { word, now, wait or 0, stale, claims, dropped, alone }
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
-- What waits behind a long task may have been recalled.
if claim_by > 0 and now >= claim_by then return answer('more', {}, {}) end
if alone then return answer('alone', {}, {}, alone) end

local texts, claimed, dropped, left, word, next_alone = claim_entries({
  inflight = inflight, holding = holding, awaited = awaited, picks = picks, limit = limit, limits = limits,
  to_ring = to_ring, has_more = has_more,
}, domains, bounds, now)
if tell_waiters and #texts > 0 then
  -- with: lists
  tell_waiters('started', ids_in(texts))
end
for i, text in ipairs(tell and texts or {}) do
  tell('started', text, owner, task_in(claimed[2 * i]), 1, 'lag_us', now - parse_entry(text).due)
end
if word == 'alone' then return answer(word, claimed, dropped, next_alone) end -- nothing else is awaited
return answer(word, claimed, dropped, nil, left > 0 and bounds and bounds.wait() or 0)
