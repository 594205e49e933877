-- Doorbells: lists of at most one token each. BLPOP on one sleeps until there is something to look for.
-- A bell carries no task, so one that somebody overwrote must not stop a transition half way: ringing never raises.
local function ring_bell(bell)
  if redis.pcall('LLEN', bell) == 0 then redis.call('RPUSH', bell, '1') end
end
local function ring(queue) ring_bell(PREFIX .. 'doorbell:' .. queue) end
local function ring_pollers() ring_bell(PREFIX .. 'doorbell') end

-- A lane of another type counts as empty: it stops its own queue and no other.
local function length(list)
  local n = redis.pcall('LLEN', list)
  return type(n) == 'number' and n or 0
end
local function entries_in(queue) return length(ready_lane(queue)) + length(delayed_lane(queue)) end

-- For whoever put entries there: nobody rings for a paused queue.
local function ring_if_served(queue)
  if entries_in(queue) > 0 and redis.pcall('SISMEMBER', PREFIX .. 'paused', queue) ~= 1 then ring(queue) end
end
