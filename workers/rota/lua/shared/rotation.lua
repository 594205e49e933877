-- Fair rotation inside a domain: start-time fair queueing (Goyal, Vin, Cheng 1996), kept in Redis so that it is one
-- rotation for the whole fleet and survives restarts. Of a domain there is a clock and a turn, of each queue its virtual
-- time and its turn; `turn` numbers the servings, so that ties go to the least recently served. Both are written with
-- leading zeros: as texts they stand in the order of their numbers, and a hundred queues are compared without reading one.
-- They stand in `rotation`, in the fields `DOMAIN` and `DOMAIN QUEUE`; those of a domain with patterns, whose queues come
-- and go, in a hash of its own: see shared/turns.lua.
-- with: turns
-- The hash in which a share's time stands, the field of its domain's clock, and its own.
local function fields_of(share)
  if share.in_turn then return times_key(share.domain), CLOCK, share.queue end
  return PREFIX .. 'rotation', share.domain, share.domain .. ' ' .. share.queue
end

-- Of a domain its clock and its turn, and of these places of queues in ARGV their states, as they stand.
local function read_times(domain, places)
  local fields, prefix = { domain.name }, domain.name .. ' '
  for i, place in ipairs(places) do fields[i + 1] = prefix .. ARGV[place] end
  local states = redis.call('HMGET', PREFIX .. 'rotation', unpack(fields))
  local clock, turn = numbers_of(table.remove(states, 1))
  return { clock = clock, turn = turn }, states
end

-- The state of each of these places was changed.
local function write_times(domain, times, states)
  local changed, prefix = {}, domain.name .. ' '
  for place, state in pairs(states) do
    changed[#changed + 1] = prefix .. ARGV[place]
    changed[#changed + 1] = state
  end
  if #changed == 0 then return end
  redis.call('HSET', PREFIX .. 'rotation', domain.name, state_of(times.clock, times.turn), unpack(changed))
end

-- Which of these is to be served next, as an index.
local function next_in_rotation(states)
  local best, best_state
  for i, state in ipairs(states) do
    if not state or #state ~= STATE_BYTES then return i end -- never served, or not written here: before all others
    if not best or state < best_state then best, best_state = i, state end
  end
  return best
end

-- Entries of a queue are served, together or one by one: moves the domain's times, and returns the queue's state.
local function serve(times, state, share, entries, one_by_one)
  local start = math.max(times.clock, (numbers_of(state)))
  times.turn = times.turn + (one_by_one and entries or 1)
  times.clock = one_by_one and start + (entries - 1) * share.cost or start
  return state_of(start + entries * share.cost, times.turn)
end

local function charge(share, entries, one_by_one)
  local key, clock_field, field = fields_of(share)
  local states = redis.call('HMGET', key, clock_field, field)
  local clock, turn = numbers_of(states[1])
  local times = { clock = clock, turn = turn }
  local state = serve(times, states[2], share, entries, one_by_one)
  redis.call('HSET', key, clock_field, state_of(times.clock, times.turn), field, state)
  if share.in_turn then move_in_turn(share, states[2], state) end
end

-- Give back the price of entries that were claimed and not served.
local function credit(share, entries)
  if not share or entries == 0 then return end
  local key, _, field = fields_of(share)
  local before = redis.call('HGET', key, field)
  if share.in_turn and not before then return end -- it was forgotten meanwhile
  local time, turn = numbers_of(before)
  local state = state_of(time - entries * share.cost, turn)
  redis.call('HSET', key, field, state)
  if share.in_turn then move_in_turn(share, before, state) end
end
