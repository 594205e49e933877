-- Doorbells: lists with at most one token each. A worker sleeps in BLPOP on the bells of its queues. Ringing never
-- raises an error, because a bell of the wrong type must not stop a script after its first write. No task is lost in
-- that case, because a bell holds no data.
-- with: patterns marks
-- keys     doorbell doorbell:* paused queue:*
local function ring_bell(bell)
  if redis.pcall('LLEN', bell) ~= 0 then return 0 end
  redis.call('RPUSH', bell, '1')
  return 1
end
local function ring_pollers() ring_bell(PREFIX .. 'doorbell') end

-- Wake one of the workers that serve a queue. Return how many bells were rung.
local function ring_bells(queue) return ring_bell(PREFIX .. 'doorbell:' .. queue) end
if any_patterns then
  ring_bells = function(queue)
    local rung = 0
    for _, name in ipairs(bell_names(queue)) do rung = rung + ring_bell(PREFIX .. 'doorbell:' .. name) end
    return rung
  end
end

-- Wake a worker and mark the queue, so that claims check it. Scripts that pushed entries call this.
local function ring(queue)
  if any_patterns then mark(queue) end
  return ring_bells(queue)
end

-- A lane of the wrong type counts as empty, so it stops only its own queue.
local function length(list)
  local n = redis.pcall('LLEN', list)
  return type(n) == 'number' and n or 0
end
local function entries_in(queue) return length(ready_lane(queue)) + length(delayed_lane(queue)) end

-- Like `ring`, but ring only if the queue has entries and is not paused.
local function ring_if_served(queue)
  if entries_in(queue) == 0 then return 0 end
  if redis.pcall('SISMEMBER', PREFIX .. 'paused', queue) ~= 1 then return ring(queue) end
  if any_patterns then mark(queue) end
  return 0
end
