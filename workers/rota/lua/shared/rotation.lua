-- Fair rotation inside a domain: start-time fair queueing (Goyal, Vin, Cheng 1996), kept in Redis so that it is one
-- rotation for the whole fleet and survives restarts. `DOMAIN` -> `clock turn`, `DOMAIN QUEUE` -> `virtual-time turn`;
-- `turn` numbers the servings, so that ties go to the least recently served. Both are written with leading zeros: as
-- texts they stand in the order of their numbers, and a hundred queues are compared without reading one.
local function numbers_of(state)
  local time, turn = string.match(state or '', '^(%d+) (%d+)$')
  return tonumber(time) or 0, tonumber(turn) or 0
end
local STATE_BYTES = 33 -- twenty digits, a space, twelve digits
local function state_of(time, turn) return string.format('%020.0f %012.0f', math.max(0, time), turn) end

-- Of these places of queues in ARGV the one to serve next, as an index.
local function next_in_rotation(domain, places)
  if #places == 1 then return 1 end
  local fields, prefix = {}, domain.name .. ' '
  for i, place in ipairs(places) do fields[i] = prefix .. ARGV[place] end
  local best, best_state
  for i, state in ipairs(redis.call('HMGET', PREFIX .. 'rotation', unpack(fields))) do
    if not state or #state ~= STATE_BYTES then return i end -- never served, or not written here: before all others
    if not best or state < best_state then best, best_state = i, state end
  end
  return best
end

local function charge(share, entries)
  local field = share.domain .. ' ' .. share.queue
  local states = redis.call('HMGET', PREFIX .. 'rotation', share.domain, field)
  local clock, turn = numbers_of(states[1])
  local start = math.max(clock, (numbers_of(states[2])))
  redis.call('HSET', PREFIX .. 'rotation', share.domain, state_of(start, turn + 1), field,
    state_of(start + entries * share.cost, turn + 1))
end

-- Give back the price of entries that were claimed and not served.
local function credit(share, entries)
  if not share or entries == 0 then return end
  local field = share.domain .. ' ' .. share.queue
  local time, turn = numbers_of(redis.call('HGET', PREFIX .. 'rotation', field))
  redis.call('HSET', PREFIX .. 'rotation', field, state_of(time - entries * share.cost, turn))
end
