#!lua flags=allow-oom
-- What became of tasks; of those that have not come so far, note that this client waits.
-- with: prefix clock entry lists in_use former bare waiters standing
-- KEYS[1]  tasks
-- ARGV
--   client    who waits
--   goal, id  of each task; goal: its start `s`, its end `e`, or its end with its result `r`
-- keys     dead delayed ends ends-sealed ends-untold ends:* epitaphs events-on former inflight:* members owners
--          patterns paused progress queue:* replies:* result:* tasks tickets waiters
-- returns  of each as `status`, or nothing when the client will be told; fewer, when these have become too many bytes,
--          or too many were looked through
-- Invariant: what has not come yet is noted in the call that looked, so nothing can come unseen between.
local MOST_BYTES, MOST_NOTED = 1048576, 1000
local NOT_YET = { scheduled = true, ready = true }
local client, tasks = ARGV[1], PREFIX .. 'tasks'
redis.call('HLEN', WAITERS)
redis.call('HLEN', tasks)
redis.call('HLEN', PREFIX .. 'tickets')
redis.call('ZCARD', PREFIX .. 'dead')
redis.call('HLEN', PREFIX .. 'epitaphs')

-- Who comes too late for the room there asks again by itself, in some seconds.
local function note(goal, id)
  local word = ' ' .. (goal == 's' and 's:' or 'e:') .. client
  local noted = redis.call('HGET', WAITERS, id) or ''
  if string.find(noted .. ' ', word .. ' ', 1, true) or #noted > MOST_NOTED then return end
  redis.call('HSET', WAITERS, id, noted .. word)
end

-- What owners have in hand, by id: looked up once a call, and only for those of which it matters.
local in_hand
local function held(id)
  in_hand = in_hand or all_held()
  local found = in_hand[id] or {}
  return found.owner, found.line
end

-- Where an id stands, or nothing when what is waited for has not come.
local function look(goal, id)
  local is_live = redis.call('HSTRLEN', tasks, id) > 0 and not redis.call('ZSCORE', PREFIX .. 'dead', id)
  if is_live and (goal ~= 's' or not held(id)) then return nil end
  local found = standing_of(id, held, 0)
  if NOT_YET[found[1]] or found[1] == 'running' and goal ~= 's' then return nil end
  return found
end

local answers, bytes = {}, 0
for i = 2, #ARGV, 2 do
  if bytes > MOST_BYTES or looked >= MOST_LOOKED then break end
  local goal, id = ARGV[i], ARGV[i + 1]
  local found = look(goal, id)
  if found then
    bytes = bytes + #found[8] + #found[9] + #(found[10] or '') + #found[13] -- body, accounts, result, record
  else
    note(goal, id)
  end
  answers[#answers + 1] = found or false
end
return answers
