-- Fair rotation inside a domain: start-time fair queueing (Goyal, Vin, Cheng 1996), kept in Redis so that it is one
-- rotation for the whole fleet and survives restarts. Of a domain there is a clock and a turn, of each queue its virtual
-- time and its turn; `turn` numbers the servings, so that ties go to the least recently served. Both are written with
-- leading zeros: as texts they stand in the order of their numbers, and queues are compared without reading one.
-- They stand in `rotation`, under `DOMAIN` and `DOMAIN QUEUE`; of a domain with patterns, whose queues come and go, in a
-- hash of its own: see shared/turns.lua.
-- with: patterns
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

-- The hash in which a share's time stands, the field of its domain's clock, and its own.
local CLOCK = '*' -- no queue has that name
local function fields_of(share)
  if share.by_turn then return times_key(share.domain), CLOCK, share.queue end
  return PREFIX .. 'rotation', share.domain, share.domain .. ' ' .. share.queue
end

-- What credit and charge may write, read before the first write.
local function guard_rotation(domains)
  redis.call('HLEN', PREFIX .. 'rotation')
  for _, domain in ipairs(domains) do
    if domain.has_patterns then
      redis.call('HLEN', times_key(domain.name))
      redis.call('ZCARD', turns_key(domain.name))
    end
  end
end

-- Where a queue stands by its turn it moves to its new state there, if it was there.
local function move_to(share, before, state)
  if not share.by_turn or not before then return end
  local turns = turns_key(share.domain)
  local score = redis.call('ZSCORE', turns, before .. ' ' .. share.queue)
  if not score then return end
  redis.call('ZREM', turns, before .. ' ' .. share.queue)
  redis.call('ZADD', turns, score, state .. ' ' .. share.queue)
end

local function charge(share, entries)
  local key, clock_field, field = fields_of(share)
  local states = redis.call('HMGET', key, clock_field, field)
  local clock, turn = numbers_of(states[1])
  local start = math.max(clock, (numbers_of(states[2])))
  local state = state_of(start + entries * share.cost, turn + 1)
  redis.call('HSET', key, clock_field, state_of(start, turn + 1), field, state)
  move_to(share, states[2], state)
end

-- Give back the price of entries that were claimed and not served.
local function credit(share, entries)
  if not share or entries == 0 then return end
  local key, _, field = fields_of(share)
  local before = redis.call('HGET', key, field)
  if share.by_turn and not before then return end -- it was forgotten since
  local time, turn = numbers_of(before)
  local state = state_of(time - entries * share.cost, turn)
  redis.call('HSET', key, field, state)
  move_to(share, before, state)
end
