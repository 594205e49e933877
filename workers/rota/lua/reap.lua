#!lua flags=allow-oom
-- Remove an owner whose process has exited or whose lease has expired. Settle the tasks that the owner had finished,
-- and put the others back at the head of their lanes, in order. Tasks that may have caused the crash or the loss are
-- charged with it.
-- with: prefix clock numbers entry doorbell counters in_use incarnations legacy_item task_events waiters other_ends
-- with: following
-- with: settle adopt tiers rotation
-- KEYS[1]  tasks
-- ARGV
--   owner                       the owner to remove
--   reason                      exit | expired, see below
--   crash_limit                 number of crashes after which a task is dead
--   loss_limit                  number of losses after which a task is dead
--   loss_record                 attempt record for the tasks that the owner held, if its lease has expired
--   mark_of_crash               letter of the kind of crash, or '' if no task is to blame
--   count_ran                   number of running tasks that follow
--   id, record                  running task, or `all held` for all of them, and the attempt record; `count_ran` x
--   settlements                 number of outcomes that follow
--   entry, verb, first, second  outcome of a finished task, see rota/protocol/outcome.py; `settlements` x
--   domains                     the tiers, see shared/tiers.lua
-- keys     consumers counts dead delayed doorbell doorbell:* ends ends-sealed ends-untold ends:* epitaphs events
--          events-on former group-members:* group:* groups idle inflight:* keys members meta nodes owners patterns
--          paused progress pulse queue:* queues ready replies:* result:* rotation served tasks tickets times:* totals
--          turns:* unique:* waiters
-- returns  ok | alive, the number of outcomes that were settled, and three lists: the entries given back, the entries
--          that are now dead, and the entries whose outcomes were stale
--   exit     the process is known to have exited. Only the tasks that ran are charged with a crash, and only if
--            `record` and `mark_of_crash` are not empty. An empty id means the first entry that is left in the list
--            after the outcomes are settled; `all held` means all entries that are left. If several tasks are charged,
--            none becomes dead, because it is not known which of them caused the crash. Entries with a crash on record
--            run alone, so the next crash identifies the task. A charged task that will run again keeps `record` as its
--            last attempt record, and `mark_of_crash` in the flag, the last field of its entry
--   expired  the lease has expired. Every task that the owner held is charged with a loss. The script checks the lease
--            again, and returns `alive` and changes nothing if the lease has not expired, or during the grace period
--            after an outage, in which owners can renew leases that have expired meanwhile
-- A task that ran or is charged with a loss becomes due now, and gets the kind `c` (recovered). A task that was not
-- started keeps its due time, so its lag is counted. While a node of an earlier version is alive, all tasks keep their
-- kind and due time.
-- A task that may be started at most once and is marked as started (see mark_started.lua) becomes dead.
-- Invariant: afterwards the owner is not registered, its list does not exist, and nothing that its process sends has an
-- effect.
local GARBAGE = '{"reason":"garbage","error":"not an entry, but it was in the list of a worker"}'
local now = redis_now()
local owner, reason = ARGV[1], ARGV[2]
local crash_limit, loss_limit, loss_record, mark_of_crash = tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5], ARGV[6]
local inflight = PREFIX .. 'inflight:' .. owner
local at, ran, guilty = 8, {}, 0
local count_ran = tonumber(ARGV[7])
for _ = 1, count_ran do
  local id, record = ARGV[at], ARGV[at + 1]
  ran[id] = record
  if record ~= '' then guilty = guilty + 1 end
  at = at + 2
end
local settlements, settlements_at = tonumber(ARGV[at]), at + 1
local domains = read_tiers(settlements_at + settlements * 4)

-- Checks that may raise an error come before the first write.
local expires = redis.call('ZSCORE', PREFIX .. 'owners', owner)
if reason == 'expired' then
  local grace = whole(redis.call('HGET', PREFIX .. 'pulse', 'grace_until')) or 0
  if not expires or tonumber(expires) > now or grace > now then return { 'alive', 0, {}, {}, {} } end
end
guard_task_keys()
guard_rotation(domains)
local has_list = is_list(inflight) -- a key of another type holds no entries, and is not touched

local touched, all_settled = {}, 0
local outcomes = { owner = owner, now = now, at = settlements_at, n = has_list and settlements or 0 }
local stale, settled, released = settle(outcomes)
for queue, ended in pairs(settled) do
  all_settled = all_settled + ended
  count('running:' .. queue, -ended)
  touched[queue] = true
  credit(share_of(domains, queue), released[queue] or 0)
end

-- Return whether all live nodes know the kind `c`. An earlier version treats such an entry as garbage.
local function is_known_to_all()
  for _, node in ipairs(redis.pcall('HVALS', PREFIX .. 'nodes')) do -- a key of the wrong type counts as empty
    local ends, heartbeat = string.match(node, '^(%d+) (.*)$')
    if (whole(ends) or 0) > now and not string.find(heartbeat, '"kinds":"%l*c') then return false end
  end
  return true
end
local is_due_anew = (next(ran) or reason == 'expired') and is_known_to_all()

-- Charge an entry with a crash or a loss. Return its attempt record, or nil, and whether the task has reached its
-- limit.
local function charge_entry(e)
  if reason == 'expired' then
    e.losses = e.losses + 1
    return loss_record, e.losses >= loss_limit
  elseif (ran[e.id] or '') ~= '' and mark_of_crash ~= '' then
    e.crashes = e.crashes + 1
    return ran[e.id], guilty == 1 and e.crashes >= crash_limit
  end
  e.releases = e.releases + 1
  credit(share_of(domains, e.queue), 1)
  return nil, false
end

-- Return the death record of a task that must not be started again. It describes what happened, with the reason
-- `at_most_once`.
local function end_of_marked(e)
  local happened = reason == 'expired' and loss_record or ran[e.id] or MAY_HAVE_STARTED
  local record, found = string.gsub(happened, '^{"reason":"[%l_]+"', '{"reason":"at_most_once"')
  return found == 1 and record or MAY_HAVE_STARTED
end

local requeued, dead = {}, {}
local function set_aside(e, record)
  table.insert(dead, 1, entry_text(e))
  bury(e, record, now, owner)
end

local function let_go(e)
  count('running:' .. e.queue, -1)
  touched[e.queue] = true
  if any_progress then redis.pcall('HDEL', PROGRESS, e.id) end
  if is_tombstone(e.id, e.flag, true) then return end
  local record, is_last = charge_entry(e)
  if redis.call('HGET', PREFIX .. 'tasks', e.id) == '' then
    e.text = entry_text(e) -- the text with the new counters
    return end_task(e, 'cancelled', now, owner, NO_RUN .. '-')
  end
  if string.find(e.flag, 'b', 1, true) then return set_aside(e, end_of_marked(e)) end
  if is_last then return set_aside(e, record) end
  if record then keep_attempt_record(e, mark_of_crash, record) end
  if is_due_anew and (record or ran[e.id]) then e.kind, e.due, e.ready = 'c', now, now end
  local is_back = give_back(e, now)
  table.insert(is_back and requeued or dead, 1, entry_text(e))
  if is_back and report then report('recovered', entry_text(e), owner, nil, 0, 'reason', reason_in(record)) end
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

-- Also ring for all queues that the owner served, because the owner may have taken a doorbell token before it died.
each_queue(domains, function(name)
  touched[name] = true
  if is_pattern(name) then ring_bell(PREFIX .. 'doorbell:' .. name) end -- workers of the pattern check all its queues
end)
for queue in pairs(touched) do ring_if_served(queue) end
return { 'ok', all_settled, requeued, dead, stale }
