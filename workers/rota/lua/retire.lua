#!lua flags=allow-oom
-- End an owner's life: settle what it had finished, then give the rest back to the head of their lanes, in order,
-- with the blame where it belongs.
-- with: prefix clock numbers entry doorbell books in_use former bare news waiters otherwise following
-- with: settle adopt tiers rotation
-- KEYS[1]  tasks
-- ARGV
--   owner             whose life ends
--   reason            exit | expired
--   crash_limit       how many crashes end a task
--   loss_limit        how many losses end a task
--   loss_epitaph      of all it held, when it expired
--   mark_of_crash     the letter of its kind, or '' when no task is to blame
--   count_ran         how many follow
--   id, epitaph       so many x, of each task that ran
--   settlements       how many follow
--   entry, verb, first, second  so many x
--   domains           the tiers, see shared/tiers.lua
-- keys     consumers counts dead delayed doorbell doorbell:* ends ends-sealed ends-untold ends:* epitaphs events
--          events-on former group-members:* group:* groups idle inflight:* keys members meta nodes owners patterns
--          paused progress pulse queue:* queues ready replies:* result:* rotation served tasks tickets times:* totals
--          turns:* unique:* waiters
-- returns  ok | alive, how many outcomes counted, entries given back, entries set aside as dead, outcomes that were
--          stale
--   exit     the process is known to be gone. Only what ran is charged with the crash, unless its epitaph or the mark
--            is empty; an empty id is what stands first in the list once the outcomes are settled, `all held` is all in
--            it. Of several that are charged nobody knows which one it was, so none is dead of it: entries with a crash
--            on record run alone, and there the guilty one is found.
--            What is charged and goes on keeps the epitaph as the account of its last crash, and the mark in its flag.
--   expired  nobody renewed it: everything held is charged with the loss. Checked again here: `alive` when the lease
--            has not run out or grace is on, and then nothing is done.
-- What ran, or is charged with the loss, had its start: it is due anew from now, as recovered. What had not been
-- started yet keeps its due time: it is late. While a node of an earlier version lives, all keeps kind and due time.
-- What has begun (see begin.lua) is set aside as dead, with the epitaph of what ran or of the loss.
-- Invariant: afterwards the owner is not registered, its list is gone, and nothing it sends has an effect.
local GARBAGE = '{"reason":"garbage","error":"not an entry, though it stood among those of a worker"}'
local now = redis_now()
local owner, reason = ARGV[1], ARGV[2]
local crash_limit, loss_limit, loss_epitaph, mark_of_crash = tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5], ARGV[6]
local inflight = PREFIX .. 'inflight:' .. owner
local at, ran, guilty = 8, {}, 0
local count_ran = tonumber(ARGV[7])
for _ = 1, count_ran do
  local id, epitaph = ARGV[at], ARGV[at + 1]
  ran[id] = epitaph
  if epitaph ~= '' then guilty = guilty + 1 end
  at = at + 2
end
local settlements, settlements_at = tonumber(ARGV[at]), at + 1
local domains = read_tiers(settlements_at + settlements * 4)

-- Guards, before the first write.
local expires = redis.call('ZSCORE', PREFIX .. 'owners', owner)
if reason == 'expired' then
  local grace = whole(redis.call('HGET', PREFIX .. 'pulse', 'grace_until')) or 0
  if not expires or tonumber(expires) > now or grace > now then return { 'alive', 0, {}, {}, {} } end
end
guard_places()
guard_rotation(domains)
local has_list = is_list(inflight) -- of another type it holds nothing, and is left to whoever put it there

local touched, all_settled = {}, 0
local stale, settled, released = settle(owner, settlements_at, has_list and settlements or 0, now, 0, '')
for queue, ended in pairs(settled) do
  all_settled = all_settled + ended
  count('running:' .. queue, -ended)
  touched[queue] = true
  credit(share_of(domains, queue), released[queue] or 0)
end

-- Whether all nodes that live know the kind of what is due anew: an earlier version takes such an entry for garbage.
local function is_known_to_all()
  for _, node in ipairs(redis.pcall('HVALS', PREFIX .. 'nodes')) do -- of another type it stops nothing
    local ends, heartbeat = string.match(node, '^(%d+) (.*)$')
    if (whole(ends) or 0) > now and not string.find(heartbeat, '"kinds":"%l*c') then return false end
  end
  return true
end
local is_due_anew = (next(ran) or reason == 'expired') and is_known_to_all()

-- Charge an entry; returns the account of what it is charged with, and whether this was its last life.
local function charge_entry(e)
  if reason == 'expired' then
    e.losses = e.losses + 1
    return loss_epitaph, e.losses >= loss_limit
  elseif (ran[e.id] or '') ~= '' and mark_of_crash ~= '' then
    e.crashes = e.crashes + 1
    return ran[e.id], guilty == 1 and e.crashes >= crash_limit
  end
  e.releases = e.releases + 1
  credit(share_of(domains, e.queue), 1)
  return nil, false
end

-- The epitaph of what may not be started again: what happened, as far as that was told, with the reason why this was
-- its end.
local function end_of_begun(e)
  local happened = reason == 'expired' and loss_epitaph or ran[e.id] or BEGUN
  local epitaph, found = string.gsub(happened, '^{"reason":"[%l_]+"', '{"reason":"at_most_once"')
  return found == 1 and epitaph or BEGUN
end

local requeued, dead = {}, {}
local function set_aside(e, epitaph)
  table.insert(dead, 1, entry_text(e))
  bury(e, epitaph, now, owner)
end

local function let_go(e)
  count('running:' .. e.queue, -1)
  touched[e.queue] = true
  if any_progress then redis.pcall('HDEL', PROGRESS, e.id) end
  if is_shell(e.id, e.flag, true) then return end
  local account, is_last = charge_entry(e)
  if redis.call('HGET', PREFIX .. 'tasks', e.id) == '' then
    e.text = entry_text(e) -- with what it was charged
    return end_task(e, 'cancelled', now, owner, NO_RUN .. '-')
  end
  if string.find(e.flag, 'b', 1, true) then return set_aside(e, end_of_begun(e)) end
  if is_last then return set_aside(e, account) end
  if account then keep_account(e, mark_of_crash, account) end
  if is_due_anew and (account or ran[e.id]) then e.kind, e.due, e.ready = 'c', now, now end
  local is_back = give_back(e, now)
  table.insert(is_back and requeued or dead, 1, entry_text(e))
  if is_back and tell then tell('recovered', entry_text(e), owner, nil, 0, 'reason', reason_in(account)) end
end

local rest = has_list and redis.call('LRANGE', inflight, 0, -1) or {}
local first = ran[''] and rest[1] and parse_entry(rest[1])
if first then ran[first.id] = ran[''] end
if ran['all held'] then
  guilty = #rest
  for _, text in ipairs(rest) do ran[glance(text) or ''] = ran['all held'] end
end
for i = #rest, 1, -1 do
  local e = parse_entry(rest[i])
  if e then
    let_go(e)
  else
    set_aside((adopt(rest[i], nil, 'unknown', 'i', now, now)), GARBAGE)
  end
end
if has_list then redis.call('DEL', inflight) end
redis.call('ZREM', PREFIX .. 'owners', owner)
redis.pcall('HDEL', PREFIX .. 'consumers', owner)

-- Ring also the queues it served: a token it had swallowed is known to nobody else.
each_queue(domains, function(name)
  touched[name] = true
  if is_pattern(name) then ring_bell(PREFIX .. 'doorbell:' .. name) end -- of a pattern: who hears it looks
end)
for queue in pairs(touched) do ring_if_served(queue) end
return { 'ok', all_settled, requeued, dead, stale }
