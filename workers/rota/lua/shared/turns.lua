-- The queues of a domain with patterns, in the order of their turns, so that a claim does not look at all of them: the
-- sorted set `turns:DOMAIN` has, by score,
--   -1  marks: names of queues that came to have something, or room, and that no claim has looked at since
--   0   `TIME TURN QUEUE` of those that may be served: as texts they stand in the order of their turns
--   T   the same of those that may not: until the microsecond T, or SHUT, until somebody marks them
-- Their times stand in `times:DOMAIN`. A queue that is not among these starts at the clock, or where it would be by
-- its time if that is later: what was empty gains nothing by it, and what is forgotten is soon no other than what is not.
-- with: rotation
local OPEN, SHUT = 0, LATEST
local MOST_MARKS, MOST_OPENED = 50, 20 -- a call: what is left is met by the next ones
local FURTHEST = 1e12 -- ahead of the clock: further than a claim can take it at any sensible weight

-- The time and turn of a queue that comes back, and had these before.
local function state_on_return(clock, before)
  local time = before and #before == STATE_BYTES and numbers_of(before) or 0
  return time > clock and time - clock < FURTHEST and before or state_of(clock, 0)
end

-- Give marked queues their places; returns how many marks there were.
local function place_marks(domain)
  local turns, times = turns_key(domain.name), times_key(domain.name)
  local marks = redis.call('ZRANGE', turns, MARK, MARK, 'BYSCORE', 'LIMIT', 0, MOST_MARKS)
  if #marks == 0 then return 0 end
  redis.call('ZREM', turns, unpack(marks))
  local states, places, placed, known = redis.call('HMGET', times, CLOCK, unpack(marks)), {}, {}, {}
  for i, queue in ipairs(marks) do places[i] = (states[i + 1] or '') .. ' ' .. queue end
  local stands = redis.call('ZMSCORE', turns, unpack(places))
  local clock = numbers_of(states[1])
  for i, queue in ipairs(marks) do
    if served_as(domain.settings, queue) then -- a mark may be by the word of another master
      local state = stands[i] and states[i + 1] or state_on_return(clock, states[i + 1])
      placed[#placed + 1], placed[#placed + 2] = OPEN, state .. ' ' .. queue
      known[#known + 1], known[#known + 2] = queue, state
    end
  end
  if #known > 0 then
    redis.call('HSET', times, unpack(known))
    redis.call('ZADD', turns, unpack(placed))
  end
  return #marks
end

-- Those whose time has come may be served again.
local function open_shut(domain, now)
  local turns, opened = turns_key(domain.name), {}
  local range = { turns, '(' .. OPEN, string.format('%.0f', now), 'BYSCORE', 'LIMIT', 0, MOST_OPENED }
  for i, place in ipairs(redis.call('ZRANGE', unpack(range))) do opened[2 * i - 1], opened[2 * i] = OPEN, place end
  if #opened > 0 then redis.call('ZADD', turns, unpack(opened)) end
end

local function shut(domain, place, untill)
  redis.call('ZADD', turns_key(domain.name), 'XX', string.format('%.0f', untill), place)
end

local function leave_turns(domain_name, place) redis.call('ZREM', turns_key(domain_name), place) end

-- The place whose turn it is when so many are passed over; nil when there is none.
local function next_by_turn(domain, passed)
  return redis.call('ZRANGE', turns_key(domain.name), OPEN, OPEN, 'BYSCORE', 'LIMIT', passed, 1)[1]
end

-- The queue at a place. What is no place, or not that of its queue, was put there by others and is taken away: nil.
local function queue_at(domain, place)
  local queue = string.sub(place, STATE_BYTES + 2)
  local is_its_own = redis.call('HGET', times_key(domain.name), queue) == string.sub(place, 1, STATE_BYTES)
  if is_its_own and served_as(domain.settings, queue) then return queue end
  leave_turns(domain.name, place)
  return nil
end

-- When the first of those opens that are shut until some time, and have something; nil when none does.
local function next_opening(domain)
  local turns = turns_key(domain.name)
  local range = { turns, '(' .. OPEN, string.format('(%.0f', SHUT), 'BYSCORE', 'LIMIT', 0, MOST_OPENED, 'WITHSCORES' }
  local found = redis.call('ZRANGE', unpack(range))
  for i = 1, #found, 2 do
    if entries_in(string.sub(found[i], STATE_BYTES + 2)) > 0 then return tonumber(found[i + 1]) end
    leave_turns(domain.name, found[i])
  end
  return nil
end

-- Whether any of its queues may have something that could be taken.
local function any_in_turn(domain) return redis.call('ZCOUNT', turns_key(domain.name), MARK, OPEN) > 0 end
