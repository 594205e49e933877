-- Fair rotation inside a domain. It is stored in Redis, so it covers the whole fleet and survives restarts. `rotation`
-- has the states of virtual_time.lua in the fields `DOMAIN` and `DOMAIN QUEUE`. A domain with patterns, whose queues
-- come and go, has its own hash: see shared/turns.lua.
-- with: turns in_use virtual_time
-- keys     paused ready rotation

-- Return the hash that has the state of a share, the field of its domain, and its own field.
local function fields_of(share)
  if share.in_turn then return times_key(share.domain), CLOCK, share.queue end
  return PREFIX .. 'rotation', share.domain, share.domain .. ' ' .. share.queue
end

-- Return the states of the queues at these indexes of ARGV, and the clock and the turn of their domain.
local function states_at(domain, indexes)
  local fields = {}
  for i, index in ipairs(indexes) do fields[i] = domain.name .. ' ' .. ARGV[index] end
  fields[#fields + 1] = domain.name
  local states = redis.call('HMGET', PREFIX .. 'rotation', unpack(fields))
  return states, numbers_of(table.remove(states))
end

-- Read the keys that a charge or a credit may write. This comes before the first write of a call, so that a key of the
-- wrong type raises an error in time. A domain with one queue stores nothing.
local function guard_rotation(domains)
  for _, domain in ipairs(domains) do
    if domain.first < domain.last then redis.call('HLEN', PREFIX .. 'rotation') end
  end
  if any_patterns then guard_turns(domains) end
end

-- Charge a queue for claimed entries. `servings` is how many times the queue was chosen for them. A queue that is the
-- only one in its domain has no state.
local function charge(share, entries, servings)
  if share.is_only_node then return end
  local key, clock_field, field = fields_of(share)
  local states = redis.call('HMGET', key, field, clock_field)
  local state, clock, turn = serve(states[1], entries / servings * share.cost, servings, numbers_of(states[2]))
  redis.call('HSET', key, clock_field, state_of(clock, turn), field, state)
  if share.in_turn then move_in_turn(share, states[1], state) end
end

-- Credit a queue for entries that were claimed and given back.
local function credit(share, entries)
  if not share or share.is_only_node or entries == 0 then return end
  local key, _, field = fields_of(share)
  local before = redis.call('HGET', key, field)
  if share.in_turn and not before then return end -- the queue was forgotten since the claim
  local time, turn = numbers_of(before)
  local state = state_of(time - entries * share.cost, turn)
  redis.call('HSET', key, field, state)
  if share.in_turn then move_in_turn(share, before, state) end
end

local function paused(queue)
  return any_paused and redis.call('SISMEMBER', PREFIX .. 'paused', queue) == 1
end

-- Return the indexes of a domain's queues that are marked ready and may be served now.
local function candidates(domain, bounds)
  local indexes = {}
  for i, marked in ipairs(redis.call('SMISMEMBER', PREFIX .. 'ready', unpack(ARGV, domain.first, domain.last))) do
    local index = domain.first + i - 1
    local is_open = marked == 1 and not paused(ARGV[index])
    if is_open and (domain.settings == '' or bounds:has_room(domain, index)) then indexes[#indexes + 1] = index end
  end
  return indexes
end

-- Check all lanes once before the worker sleeps, because a program that pushes directly to a lane does not mark the
-- queue as ready.
local function mark_unmarked(domains)
  local found = false
  each_queue(domains, function(queue)
    if entries_in(queue) > 0 and redis.call('SADD', PREFIX .. 'ready', queue) == 1 then
      if any_patterns then mark(queue) end
      found = true
    end
  end)
  return found
end
