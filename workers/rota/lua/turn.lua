#!lua flags=allow-oom
-- One round trip of a worker: settle what ended, then claim what is next.
-- with: prefix clock entry doorbell lists books in_use former bare news waiters ending settle tiers claiming
-- KEYS[1]  tasks
-- ARGV     owner, limit, picks, the entry for which it empties its hands or '', n, n ids held, n, n queues whose token it
--          swallowed, limits of queues (` QUEUE=LIMIT`...), n, the lines of so many that are done (as in shared/ends.lua),
--          n, n x (entry verb first second), tiers
-- returns  word, now, wait us, stale entries, (entry, body)..., entries dropped as cancelled, and behind `alone` an entry
--   ok     the claims, perhaps none: of each pick up to `limit` of one queue; with several picks one of each, as so many
--          turns of one pick would claim. Fewer than picks: there is nothing else that may be claimed now
--   alone  the same, and no more until this owner holds nothing: the entry has to run alone, be it held or next
--   again  what the in-flight list holds and the worker did not name: the answer that told it was lost
--   lost   the owner is not registered; what it settled counted, it may claim nothing. Or its list was overwritten by
--          something else: nothing counted
--   more   the claims, as far as 500 things were looked at; call again at once with the same tokens
-- Invariant: only a registered owner's list grows; each outcome is gated on its entry being in that list.
local now = redis_now()
local owner, limit, picks, awaited = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local inflight = PREFIX .. 'inflight:' .. owner
local at = 5

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
for verb_at = settlements_at + 1, settlements_at + settlements * 4, 4 do
  if ARGV[verb_at] ~= 'done' then
    guard_places()
    break
  end
end

-- What is asked for and what was found: see shared/claiming.lua.
local call = {
  owner = owner, inflight = inflight, now = now, domains = domains, bounds = bounds,
  limit = limit, limits = limits, picks = picks, several = picks > 1,
  texts = {}, claims = {}, dropped = {}, to_ring = {}, pushed = 0, examined = 0, wait = 0, holding = 0,
}

-- Settle.
local stale, by_queue = {}, {}
if has_list then stale, by_queue = settle(owner, settlements_at, settlements, now, plain_count, plain) end
local to_ring = call.to_ring
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
local function pass_on(queue)
  if any_patterns and is_pattern(queue) then return pass_on_in_turn(domains, queue) end
  if paused(queue) or entries_in(queue) == 0 then return end
  local share = share_of(domains, queue)
  if share and share.is_bounded and bounds.keep_shut(share) then return end
  ring_bells(queue)
end

local function answer(word, claims, alone)
  if word ~= 'more' then
    for _, queue in ipairs(tokens) do to_ring[queue] = true end
  end
  for queue in pairs(to_ring) do pass_on(queue) end
  return { word, now, call.wait, stale, claims, call.dropped, alone }
end

if not registered or not has_list then
  -- It may have died at a doorbell, and this turn, sent along, is all that still tells of the token it took.
  each_queue(domains, function(queue) to_ring[queue] = true end)
  return answer('lost', {})
end

-- What the list holds and the worker did not name.
local suspicious_held
if holding > 0 then
  local named, claims = {}, {}
  for _, id in ipairs(held) do named[id] = true end
  for _, text in ipairs(redis.call('LRANGE', inflight, 0, -1)) do
    local id, suspicious = glance(text)
    if suspicious then suspicious_held = text end
    if not id then
      holding = holding - 1 -- no entry: `retire` will set it aside
    elseif not named[id] then
      local is_former = any_former and is_shell(id, flag_of(text))
      claims[#claims + 1] = text
      claims[#claims + 1] = not is_former and redis.call('HGET', PREFIX .. 'tasks', id) or ''
    end
  end
  if #claims > 0 then return answer('again', claims) end
end
if limit <= 0 then return answer('ok', {}) end
if suspicious_held then return answer('alone', {}, suspicious_held) end

call.holding = holding
claim(call, awaited)
return answer(call.picks > 0 and call.halted or 'ok', call.claims, call.alone)
