-- Counters: `counts` has the number of tasks in each state, which `heal` counts again. `totals` has the number of tasks
-- that were ever accepted or ended. `count` and `total` never raise an error, because a field whose value is not a
-- number must not stop a script after its first write.
-- keys     counts dead delayed epitaphs keys ready tasks tickets totals
local function count(field, by) redis.pcall('HINCRBY', PREFIX .. 'counts', field, by) end
local function total(field, by) redis.pcall('HINCRBY', PREFIX .. 'totals', field, by) end

-- Counters that may go up and down within a call are written once at the end of the call, and only if they have
-- changed.
local later = {}
local function count_later(field, by) later[field] = (later[field] or 0) + by end
local function write_counts()
  for field, by in pairs(later) do
    if by ~= 0 then count(field, by) end
  end
  later = {}
end

-- Read the keys to which the counters and the entry of a task will be written, so that a key of the wrong type raises
-- an error here, before the first write.
local function guard_task_keys()
  redis.call('HLEN', PREFIX .. 'tasks')
  redis.call('HLEN', PREFIX .. 'tickets')
  redis.call('ZCARD', PREFIX .. 'delayed')
  redis.call('ZCARD', PREFIX .. 'dead')
  redis.call('HLEN', PREFIX .. 'epitaphs')
  redis.call('HLEN', PREFIX .. 'keys')
  redis.call('HLEN', PREFIX .. 'counts')
  redis.call('HLEN', PREFIX .. 'totals')
  redis.call('SCARD', PREFIX .. 'ready')
end
