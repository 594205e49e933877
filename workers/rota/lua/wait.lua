#!lua flags=allow-oom
-- Return the states of the tasks that have reached a goal, and register the client as waiting for the others. A task
-- that has ended, is dead or is unknown has reached every goal.
-- with: prefix clock entry lists in_use incarnations legacy_item waiters task_state
-- KEYS[1]  tasks
-- ARGV
--   client    name of the client that waits
--   goal, id  what the client waits for, and the id of the task; a goal is `s` for the start, `e` for the end, or `r`
--             for the end with the result
-- keys     dead delayed ends ends-sealed ends-untold ends:* epitaphs events-on former inflight:* members owners
--          patterns paused progress queue:* replies:* result:* tasks tickets waiters
-- returns  for each task, its state as `status` returns it, or false if it has not reached the goal; the client is then
--          registered, unless the record of that task's waiters already has 1000 bytes. The reply does not show whether
--          the client is registered, so the client has to check again from time to time. The reply ends early if it
--          exceeds 1 MiB, or once 3 MiB of the records of ended tasks have been searched; in both cases the last tasks
--          are missing
-- Invariant: a client that has to wait is registered in the same call, so that it misses no change.
local MOST_BYTES, MOST_NOTED = 1048576, 1000
local NOT_YET = { scheduled = true, ready = true }
local client, tasks = ARGV[1], PREFIX .. 'tasks'
redis.call('HLEN', WAITERS)
redis.call('HLEN', tasks)
redis.call('HLEN', PREFIX .. 'tickets')
redis.call('ZCARD', PREFIX .. 'dead')
redis.call('HLEN', PREFIX .. 'epitaphs')

-- If the record of the task's waiters has no room, the client is not registered. It then notices the start or the end
-- of the task at its next check, some seconds later.
local function note(goal, id)
  local waiter = ' ' .. (goal == 's' and 's:' or 'e:') .. client
  local noted = redis.call('HGET', WAITERS, id) or ''
  if string.find(noted .. ' ', waiter .. ' ', 1, true) or #noted > MOST_NOTED then return end
  redis.call('HSET', WAITERS, id, noted .. waiter)
end

-- The entries in flight, by id. They are read once per call, and only if a task needs them.
local held_entries
local function held(id)
  held_entries = held_entries or all_held()
  local found = held_entries[id] or {}
  return found.owner, found.line
end

-- Return the state of a task that has reached its goal, otherwise nil.
local function reached(goal, id)
  local is_live = redis.call('HSTRLEN', tasks, id) > 0 and not redis.call('ZSCORE', PREFIX .. 'dead', id)
  if is_live and (goal ~= 's' or not held(id)) then return nil end
  local found = task_state_of(id, held, 0)
  if NOT_YET[found[1]] or found[1] == 'running' and goal ~= 's' then return nil end
  return found
end

local replies, bytes = {}, 0
for i = 2, #ARGV, 2 do
  if bytes > MOST_BYTES or bytes_read >= MOST_READ then break end
  local goal, id = ARGV[i], ARGV[i + 1]
  local found = reached(goal, id)
  if found then
    bytes = bytes + #found[8] + #found[9] + #(found[10] or '') + #found[13] -- body, attempt records, result, record
  else
    note(goal, id)
  end
  replies[#replies + 1] = found or false
end
return replies
