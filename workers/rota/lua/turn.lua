#!lua flags=allow-oom
-- Settle a worker's finished tasks, then claim its next tasks. This is the one round trip of a worker.
-- with: prefix clock idle_turn entry doorbell counters in_use incarnations task_events waiters following settle tiers
-- with: rotation
-- KEYS[1]  tasks
-- ARGV
--   owner                       owner name of the worker
--   limit                       maximum number of entries to claim from one queue, 0 to claim nothing
--   picks                       number of times a queue is chosen; if it is above 1, each pick claims one entry
--   awaited                     entry that has to run alone and for which the worker finishes its other tasks, or ''
--   names_held                  0|1: whether the ids that the worker holds follow; 0 if it received the reply to each
--                               claim
--   claim_by                    Redis time in microseconds from which on nothing may be claimed, because the master may
--                               then have returned tasks of this worker; 0 for no limit
--   held                        number of ids that the worker holds, then these ids
--   tokens                      number of queues whose doorbell tokens the worker took, then these queues; the script
--                               rings for them again if they still have entries, unless it returns `more`
--   limits                      text ` QUEUE=LIMIT` for each queue whose own limit replaces `limit`
--   plain_count                 number of tasks in `plain`
--   plain                       text with a line for each task that is done without a result, as in shared/ends.lua
--   settlements                 number of other outcomes that follow
--   entry, verb, first, second  outcome of a task, see rota/protocol/outcome.py; `settlements` x
--   domains                     the tiers, see shared/tiers.lua
-- keys     closed conditions counts dead delayed doorbell doorbell:* ends ends-sealed ends-untold ends:* epitaphs
--          events events-on former group-members:* group:* groups idle inflight:* keys members meta owners patterns
--          paused progress queue:* queues rates ready replies:* result:* rotation served tasks tickets times:* totals
--          turns:* unique:* waiters
-- returns  a status; now, in microseconds; microseconds until a rate or a condition opens a queue (0 for none); stale
--          entries; a flat list with entry and body of each claim; entries that were dropped because they were
--          cancelled; with `quarantine` the entry that has to run alone
--   ok          the claims: up to `limit` entries of one queue. With several picks, these are the entries that as many
--               turns with one pick each would claim. Fewer entries than `picks` mean that nothing else may be claimed
--               now
--   backlogged  as `ok` with one pick, and enough tasks are left for this worker to prefetch the next one
--   quarantine  as `ok`, but the claim ended at an entry that has to run alone, so nothing else is claimed while this
--               owner holds a task. The owner already holds that entry, or the entry is the first of its queue, and the
--               worker passes it as `awaited` when it has finished its other tasks
--   again       the claims are the entries of the in-flight list that the worker did not name, because the reply that
--               returned them was lost; the body is '' if the task was cancelled
--   lost        the owner is not registered, so it may claim nothing; outcomes were settled only if their entries were
--               still in its list. Or its list has the wrong type, and nothing was settled
--   more        500 entries were examined and picks are left, or `claim_by` has passed and nothing was claimed. The
--               worker keeps the claims, and calls again at once with the same tokens and a later `claim_by`
-- Invariant: only the list of a registered owner grows. An outcome counts only if its entry is in that list.
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

-- Checks that may raise an error come before the first write: keys that any turn writes, and keys that only outcomes
-- other than `done` write.
local holding = redis.pcall('LLEN', inflight)
local has_list = type(holding) == 'number'
redis.call('HLEN', PREFIX .. 'tasks')
redis.call('HLEN', PREFIX .. 'keys')
redis.call('SCARD', PREFIX .. 'ready')
guard_rotation(domains)
local bounds -- limits of the queues, if any queue may have limits
local has_settings = false
for _, domain in ipairs(domains) do has_settings = has_settings or domain.settings ~= '' end
if has_settings then
  -- with: bounds
  redis.call('HLEN', PREFIX .. 'counts') -- caps and conditions need these keys
  redis.call('HLEN', PREFIX .. 'rates')
  bounds = make_bounds(now)
end
local goes_anywhere = any_members -- whether this turn may write to the keys of any task, as chains and groups may
for verb_at = settlements_at + 1, settlements_at + settlements * 4, 4 do
  goes_anywhere = goes_anywhere or ARGV[verb_at] ~= 'done'
end
if goes_anywhere then guard_task_keys() end

-- Settle the outcomes.
local stale, settled, released, to_ring, has_more = {}, {}, {}, {}, {}
if any_members then
  -- If a task follows, this turn may claim it, and otherwise rings for it at the end. If this worker does not serve the
  -- queue of that task, or the queue has limits, ring for other workers at once.
  following.ring = function(queue)
    local share = share_of(domains, queue)
    if not share or share.is_bounded then return ring_if_served(queue) end
    to_ring[queue] = true
    if any_patterns then mark(queue) end
  end
end
if has_list then stale, settled, released = settle({
    owner = owner, now = now, at = settlements_at, n = settlements, plain = plain, plain_n = plain_count,
  }) end
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
if bounds then write_counts() end -- conditions use the counts of running tasks

-- Ring for a queue if it has entries that a worker could claim now. Never ring for a queue that is paused, or whose
-- limits permit no start now, because workers would wake each other forever.
local function pass_on(queue)
  if any_patterns and is_pattern(queue) then return pass_on_in_turn(domains, queue) end
  if has_more[queue] == nil then has_more[queue] = entries_in(queue) > 0 end
  if not has_more[queue] or paused(queue) then return end
  local share = share_of(domains, queue)
  if share and share.is_bounded and bounds:keeps_shut(share) then return end
  ring_bells(queue)
end

local function reply(status, claims, dropped, quarantined, wait)
  if status ~= 'more' then
    for _, queue in ipairs(tokens) do to_ring[queue] = true end
  end
  for queue in pairs(to_ring) do pass_on(queue) end
  write_counts()
  return { status, now, wait or 0, stale, claims, dropped, quarantined }
end

if not registered or not has_list then
  -- The owner may have died and been reaped while its BLPOP waited at the doorbells. If that BLPOP has taken a token
  -- since, only this turn, which was pipelined behind it, can pass the token on. So ring for all queues of the owner.
  each_queue(domains, function(queue) to_ring[queue] = true end)
  return reply('lost', {}, {})
end

-- Check the entries that are in the list but that the worker did not name.
local quarantined -- the entry that has to run alone
if holding == 1 and not names_held then
  local text = redis.call('LINDEX', inflight, 0) -- an entry that has to run alone is the only one in the list
  quarantined = select(2, glance(text)) and text or nil
elseif holding > 0 and names_held then
  local named, claims = {}, {}
  for _, id in ipairs(held) do named[id] = true end
  for _, text in ipairs(redis.call('LRANGE', inflight, 0, -1)) do
    local e = parse_entry(text)
    if e and e.crashes + e.losses > 0 then quarantined = text end
    if not e then
      holding = holding - 1 -- the item is not an entry, so `reap` will set it aside
    elseif not named[e.id] then
      local is_superseded = any_incarnations and is_tombstone(e.id, e.flag)
      claims[#claims + 1] = text
      claims[#claims + 1] = not is_superseded and redis.call('HGET', PREFIX .. 'tasks', e.id) or ''
    end
  end
  if #claims > 0 then return reply('again', claims, {}) end
end
if limit <= 0 then return reply('ok', {}, {}) end
-- The master may have returned the tasks that wait behind a long task.
if claim_by > 0 and now >= claim_by then return reply('more', {}, {}) end
if quarantined then return reply('quarantine', {}, {}, quarantined) end

do -- a turn that claims nothing does not create these functions
  -- with: claim
  local claim = claim_entries({
    inflight = inflight, holding = holding, awaited = awaited, picks = picks, limit = limit, limits = limits,
    domains = domains, bounds = bounds, now = now, to_ring = to_ring, has_more = has_more,
  })
  local texts, claims, dropped = claim.texts, claim.claims, claim.dropped
  if notify_waiters and #texts > 0 then
    -- with: lists
    notify_waiters('started', ids_in(texts))
  end
  for i, text in ipairs(report and texts or {}) do
    report('started', text, owner, task_name_in(claims[2 * i]), 1, 'lag_us', now - parse_entry(text).due)
  end
  -- With `quarantine`, the worker does not have to wait for a rate or a condition.
  if claim.status == 'quarantine' then return reply('quarantine', claims, dropped, claim.quarantined) end
  return reply(claim.status, claims, dropped, nil, claim.left > 0 and bounds and bounds.wait or 0)
end
