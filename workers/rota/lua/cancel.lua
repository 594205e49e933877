#!lua flags=allow-oom
-- End a waiting task; mark a running one by an empty body, and order its node to tell the worker. A claim drops what is
-- marked, it ends wherever it would go on, and renewals name those in flight: an order that is lost is only late.
-- with: prefix clock entry ticket bare lists doorbell books in_use former news waiters otherwise following
-- KEYS[1]  tasks
-- ARGV
--   id          of the task
--   kill_after  after how many ms its process is killed if the task has not ended, or `-`
-- keys     counts dead delayed doorbell doorbell:* ends ends-sealed ends-untold ends:* epitaphs events events-on former
--          group-members:* group:* groups idle inflight:* keys members meta orders:* owners patterns paused progress
--          queue:* queues ready replies:* result:* served tasks tickets times:* totals turns:* unique:* waiters
-- returns  cancelled | running | dead | unknown
-- Invariant: a task that waits has ended when this returns; one that runs is never started again.
local ORDERS_MS, MOST_ORDERS = 60000, 1000 -- what stays for a node that is no more
local id, kill_after, now = ARGV[1], ARGV[2], redis_now()
guard_places()
local body = redis.call('HGET', PREFIX .. 'tasks', id)
if not body then return 'unknown' end
local ticket = parse_ticket(id, redis.call('HGET', PREFIX .. 'tickets', id))
if redis.call('ZSCORE', PREFIX .. 'dead', id) then return 'dead' end

-- What is known of one that waits. Nobody looks for an entry in a lane: then it is what its body says.
local _, queue, name = bare_names(body)
local account = NO_RUN .. (name or '-')
local e = ticket or new_entry(id, queue or 'unknown', 'i', 0, 0)
if not ticket then e.flag = 'u' end
local due = redis.call('ZSCORE', PREFIX .. 'delayed', id)
e.due, e.ready = due and from_score(due) or 0, 0
e.text = entry_text(e)

if redis.call('ZREM', PREFIX .. 'delayed', id) == 1 then
  redis.call('HDEL', PREFIX .. 'tickets', id)
  if ticket then count('delayed:' .. e.queue, -1) end
  end_task(e, 'cancelled', now, '-', account)
  return 'cancelled'
end

-- The node is what stands in an owner's name before its slot and its life. When the entry was ready says which life of
-- the id is meant: the next one may run there soon. A key of another type loses the order.
local function order(owner, line)
  local ready = string.match(line, '^%S+ %S+ %S+ %d+ (%d+) ') or '0'
  local orders = PREFIX .. 'orders:' .. (string.match(owner, '^(.*):%d+:%d+$') or owner)
  local pushed = redis.pcall('RPUSH', orders, kill_after .. ' ' .. id .. ' ' .. ready .. ' ' .. owner)
  if type(pushed) ~= 'number' then return end
  if pushed > MOST_ORDERS then redis.call('LTRIM', orders, -MOST_ORDERS, -1) end
  redis.call('PEXPIRE', orders, ORDERS_MS)
end

local owner, line = holder_of(id)
redis.call('HSET', PREFIX .. 'tasks', id, '')
if owner then
  order(owner, line)
  return 'running'
end
-- Now, as the claim that drops it may be long in coming: it frees its key, and its end is told.
free_unique_key(id, 'u')
if body ~= '' then
  local past = redis.call('HGET', PREFIX .. 'epitaphs', id) -- its flag, which says whether there is any, is in the lane
  note_end('cancelled', now, '-', id, e.text, account .. (past and behind_account(past) or ''))
end
return 'cancelled'
