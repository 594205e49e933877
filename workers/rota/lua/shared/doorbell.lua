-- Doorbells: lists of at most one token each. BLPOP on one sleeps until there is something to look for.
-- A bell carries no task, so one that somebody overwrote must not stop a transition half way: ringing never raises.
-- with: patterns
local function ring_bell(bell)
  if redis.pcall('LLEN', bell) ~= 0 then return 0 end
  redis.call('RPUSH', bell, '1')
  return 1
end
local function ring_pollers() ring_bell(PREFIX .. 'doorbell') end

-- Tell whoever serves a queue, or a pattern, that there may be something; returns how many bells had to be rung.
local function ring(name)
  local servings, rung = is_pattern(name) and {} or servings_of(name), 0
  mark(name, servings)
  for _, heard in ipairs(names_heard(name, servings)) do rung = rung + ring_bell(PREFIX .. 'doorbell:' .. heard) end
  return rung
end

-- A lane of another type counts as empty: it stops its own queue and no other.
local function length(list)
  local n = redis.pcall('LLEN', list)
  return type(n) == 'number' and n or 0
end
local function entries_in(queue) return length(ready_lane(queue)) + length(delayed_lane(queue)) end

-- For whoever put entries there: nobody rings for a paused queue. Whoever hears the bell of a pattern looks for himself.
local function ring_if_served(name)
  if is_pattern(name) or entries_in(name) > 0 and redis.pcall('SISMEMBER', PREFIX .. 'paused', name) ~= 1 then
    return ring(name)
  end
  return 0
end
