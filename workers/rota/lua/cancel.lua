#!lua flags=allow-oom
-- Cancel a task. A waiting task ends at once. The body of a running task is replaced by an empty one, and its node
-- receives an order to interrupt it. If the order is lost, `renew` reports the cancelled entry later. In any case, the
-- task is not attempted again.
-- with: prefix clock entry ticket legacy_item lists doorbell counters in_use incarnations task_events waiters
-- with: other_ends
-- with: following
-- KEYS[1]  tasks
-- ARGV
--   id          id of the task
--   kill_after  milliseconds after which the worker is killed if the task is still running, or `-` for never
-- keys     counts dead delayed doorbell doorbell:* ends ends-sealed ends-untold ends:* epitaphs events events-on former
--          group-members:* group:* groups idle inflight:* keys members meta orders:* owners patterns paused progress
--          queue:* queues ready replies:* result:* served tasks tickets times:* totals turns:* unique:* waiters
-- returns  cancelled (it waited, and has ended) | running (it will be interrupted) | dead (it was already dead; nothing
--          was changed) | unknown
-- Invariant: a waiting task has ended when the script returns. A running task is never started again.
local ORDERS_MS, MOST_ORDERS = 60000, 1000 -- lifetime in ms and maximum number of orders, in case the node has gone
local id, kill_after, now = ARGV[1], ARGV[2], redis_now()
guard_task_keys()
local body = redis.call('HGET', PREFIX .. 'tasks', id)
if not body then return 'unknown' end
local ticket = parse_ticket(id, redis.call('HGET', PREFIX .. 'tickets', id))
if redis.call('ZSCORE', PREFIX .. 'dead', id) then return 'dead' end

-- Describe the waiting task. If its entry is in a lane, only its body is known, because lanes are not searched.
local _, queue, name = item_names(body)
local run_record = NO_RUN .. (name or '-')
local e = ticket or new_entry(id, queue or 'unknown', 'i', 0, 0)
if not ticket then e.flag = 'u' end
local due = redis.call('ZSCORE', PREFIX .. 'delayed', id)
e.due, e.ready = due and from_score(due) or 0, 0
e.text = entry_text(e)

if redis.call('ZREM', PREFIX .. 'delayed', id) == 1 then
  redis.call('HDEL', PREFIX .. 'tickets', id)
  if ticket then count('delayed:' .. e.queue, -1) end
  end_task(e, 'cancelled', now, '-', run_record)
  return 'cancelled'
end

-- The node is the part of the owner's name before slot and nonce. The time at which the entry became ready
-- distinguishes the task from a later task with the same id, which may soon run on the same node. If the key has the
-- wrong type, the order is lost.
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
-- Free the unique key and record the end now, because the claim that drops the entry may come much later.
free_unique_key(id, 'u')
if body ~= '' then
  -- The flag of the entry would show whether there are attempt records, but the entry is somewhere in a lane. So try to
  -- read the records instead.
  local past = redis.call('HGET', PREFIX .. 'epitaphs', id)
  note_end('cancelled', now, '-', id, e.text, run_record .. (past and after_run_record(past) or ''))
end
return 'cancelled'
