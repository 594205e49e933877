-- Doorbells: lists of at most one token each. BLPOP on one sleeps until there is something to look for.
-- A bell carries no task, so one that somebody overwrote must not stop a transition half way: ringing never raises.
-- with: patterns marks
-- keys     doorbell doorbell:* paused queue:*
local function ring_bell(bell)
  if redis.pcall('LLEN', bell) ~= 0 then return 0 end
  redis.call('RPUSH', bell, '1')
  return 1
end
local function ring_pollers() ring_bell(PREFIX .. 'doorbell') end

-- Wake one of those who serve a queue; returns how many bells had to be rung.
local function ring_bells(queue) return ring_bell(PREFIX .. 'doorbell:' .. queue) end
if any_patterns then
  ring_bells = function(queue)
    local rung = 0
    for _, name in ipairs(names_heard(queue)) do rung = rung + ring_bell(PREFIX .. 'doorbell:' .. name) end
    return rung
  end
end

-- The same, by whoever put something there: claims are to look at it.
local function ring(queue)
  if any_patterns then mark(queue) end
  return ring_bells(queue)
end

-- A lane of another type counts as empty: it stops its own queue and no other.
local function length(list)
  local n = redis.pcall('LLEN', list)
  return type(n) == 'number' and n or 0
end
local function entries_in(queue) return length(ready_lane(queue)) + length(delayed_lane(queue)) end

-- For whoever put entries there: nobody rings for a paused queue.
local function ring_if_served(queue)
  if entries_in(queue) == 0 then return 0 end
  if redis.pcall('SISMEMBER', PREFIX .. 'paused', queue) ~= 1 then return ring(queue) end
  if any_patterns then mark(queue) end
  return 0
end
