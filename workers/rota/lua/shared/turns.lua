-- The queues of a domain with patterns, in the order of their turns, so that a claim does not look at all of them: the
-- sorted set `turns:DOMAIN` has, by score,
--   -1  marks: names of queues that came to have something, or room, and that no claim has looked at since
--   0   `TIME TURN QUEUE` of those that may be served: as texts they stand in the order of their turns
--   T   the same of those that may not: until the microsecond T, or SHUT, until somebody marks them
-- Their times stand in `times:DOMAIN`. A queue that is not among these starts at the clock, or where it would be by
-- its time if that is later: what was empty gains nothing by it, and one that is forgotten loses nothing.
-- with: marks virtual_time doorbell tiers
-- keys     doorbell:*
local SHUT = LATEST
local guard_turns, move_in_turn, place_marks, open_shut, shut, leave_turns
local next_in_turn, share_at, next_opening, pass_on_in_turn
if any_patterns then
  local OPEN = 0
  local MOST_MARKS, MOST_OPENED = 50, 20 -- a call: what is left is met by the next ones
  local FURTHEST = 1e12 -- ahead of the clock: further than a claim can take it at any sensible weight

  -- What a call may write, read before its first write.
  guard_turns = function(domains)
    for _, domain in ipairs(domains) do
      if domain.has_patterns then
        redis.call('HLEN', times_key(domain.name))
        redis.call('ZCARD', turns_key(domain.name))
      end
    end
  end

  -- A queue's time has changed: it moves, if it stands there.
  move_in_turn = function(share, before, state)
    local turns, place = turns_key(share.domain), (before or '') .. ' ' .. share.queue
    local score = share.place == place and OPEN or redis.call('ZSCORE', turns, place)
    if score and redis.call('ZREM', turns, place) == 1 then
      redis.call('ZADD', turns, score, state .. ' ' .. share.queue)
    end
  end

  -- The time and turn of a queue that comes back, and had these before.
  local function state_on_return(clock, before)
    local time = before and #before == STATE_BYTES and numbers_of(before) or 0
    return time > clock and time - clock < FURTHEST and before or state_of(clock, 0)
  end

  local function places_of(queues, states)
    local places = {}
    for i, queue in ipairs(queues) do places[i] = (states[i + 1] or '') .. ' ' .. queue end
    return places
  end

  -- Give marked queues their places; returns how many marks there were. A mark may be by the word of another master.
  place_marks = function(domain)
    local turns, times = turns_key(domain.name), times_key(domain.name)
    local marks = redis.call('ZRANGE', turns, MARK, MARK, 'BYSCORE', 'LIMIT', 0, MOST_MARKS)
    if #marks == 0 then return 0 end
    redis.call('ZREM', turns, unpack(marks))
    local states = redis.call('HMGET', times, CLOCK, unpack(marks))
    local stands, clock = redis.call('ZMSCORE', turns, unpack(places_of(marks, states))), (numbers_of(states[1]))
    local placed, known = {}, {}
    for i, queue in ipairs(marks) do
      if served_as(domain.settings, queue) then
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
  open_shut = function(domain, now)
    local turns, opened = turns_key(domain.name), {}
    local untill = string.format('%.0f', now)
    local places = redis.call('ZRANGE', turns, '(' .. OPEN, untill, 'BYSCORE', 'LIMIT', 0, MOST_OPENED)
    for i, place in ipairs(places) do opened[2 * i - 1], opened[2 * i] = OPEN, place end
    if #opened > 0 then redis.call('ZADD', turns, unpack(opened)) end
  end

  shut = function(domain, place, untill)
    redis.call('ZADD', turns_key(domain.name), 'XX', string.format('%.0f', untill), place)
  end

  leave_turns = function(domain_name, place) redis.call('ZREM', turns_key(domain_name), place) end

  -- The first places, in their turn.
  next_in_turn = function(domain, most)
    return redis.call('ZRANGE', turns_key(domain.name), OPEN, OPEN, 'BYSCORE', 'LIMIT', 0, most)
  end

  -- The share of the queue at a place. What is no place, or not that of its queue, was put there by others and goes:
  -- nil.
  share_at = function(domain, place)
    local share = share_in(domain, string.sub(place, STATE_BYTES + 2))
    local is_its_own = redis.call('HGET', times_key(domain.name), share.queue) == string.sub(place, 1, STATE_BYTES)
    share.place = place
    if is_its_own and share.name then return share end
    leave_turns(domain.name, place)
    return nil
  end

  -- When the first of those opens that are shut until some time, and have something; nil when none does.
  next_opening = function(domain)
    local least, most = '(' .. OPEN, string.format('(%.0f', SHUT)
    local turns = turns_key(domain.name)
    local found = redis.call('ZRANGE', turns, least, most, 'BYSCORE', 'LIMIT', 0, MOST_OPENED, 'WITHSCORES')
    for i = 1, #found, 2 do
      if entries_in(string.sub(found[i], STATE_BYTES + 2)) > 0 then return tonumber(found[i + 1]) end
      leave_turns(domain.name, found[i])
    end
    return nil
  end

  -- Ring for a pattern where any queue of its domain may have something that could be taken.
  pass_on_in_turn = function(domains, pattern)
    for _, domain in ipairs(domains) do
      local is_its_own = string.find(domain.settings, ' ' .. pattern .. '=', 1, true)
      if is_its_own and redis.call('ZCOUNT', turns_key(domain.name), MARK, OPEN) > 0 then
        return ring_bell(PREFIX .. 'doorbell:' .. pattern)
      end
    end
  end
end
