-- The queues of a domain with patterns, in the order of their turns, so that a claim does not have to check all of
-- them. The sorted set `turns:DOMAIN` has these scores and members:
--   -1  marks: names of queues that may have received entries, or may have been opened, since a claim last checked them
--   0   `TIME TURN QUEUE` for queues that may be served; these texts sort in the order of their turns
--   T   the same texts for queues that are closed until the microsecond T, or if T is SHUT, until a script marks them
-- `times:DOMAIN` has the current TIME and TURN of each queue. A queue that comes back after it was empty starts at the
-- domain's clock, or at its own time if that is later. So a queue is not preferred because it was empty, and not held
-- back when it was forgotten.
-- with: marks virtual_time doorbell tiers
-- keys     doorbell:*
local SHUT = LATEST
local guard_turns, move_in_turn, process_marks, open_shut, shut, leave_turns
local next_in_turn, share_at, next_opening, pass_on_in_turn
if any_patterns then
  local OPEN = 0
  local MOST_MARKS, MOST_OPENED = 50, 20 -- per call; later calls process the rest
  -- A virtual time that is further ahead of the domain's clock is not valid. With any sensible weight, claims stay
  -- below this limit.
  local FURTHEST = 1e12

  -- Read the keys that a call may write. This comes before its first write, so that a key of the wrong type raises an
  -- error in time.
  guard_turns = function(domains)
    for _, domain in ipairs(domains) do
      if domain.has_patterns then
        redis.call('HLEN', times_key(domain.name))
        redis.call('ZCARD', turns_key(domain.name))
      end
    end
  end

  -- Move a queue to its new time, if it has a turn.
  move_in_turn = function(share, before, state)
    local turns, member = turns_key(share.domain), (before or '') .. ' ' .. share.queue
    local score = share.member == member and OPEN or redis.call('ZSCORE', turns, member)
    if score and redis.call('ZREM', turns, member) == 1 then
      redis.call('ZADD', turns, score, state .. ' ' .. share.queue)
    end
  end

  -- Return the state of a queue that has entries again after it was empty, given its earlier state.
  local function state_on_return(clock, before)
    local time = before and #before == STATE_BYTES and numbers_of(before) or 0
    return time > clock and time - clock < FURTHEST and before or state_of(clock, 0)
  end

  local function members_of(queues, states)
    local members = {}
    for i, queue in ipairs(queues) do members[i] = (states[i + 1] or '') .. ' ' .. queue end
    return members
  end

  -- Give marked queues their turns, and return the number of marks. The mark of a queue that these settings do not
  -- serve is dropped, because it was made for another master's settings.
  process_marks = function(domain)
    local turns, times = turns_key(domain.name), times_key(domain.name)
    local marks = redis.call('ZRANGE', turns, MARK, MARK, 'BYSCORE', 'LIMIT', 0, MOST_MARKS)
    if #marks == 0 then return 0 end
    redis.call('ZREM', turns, unpack(marks))
    local states = redis.call('HMGET', times, CLOCK, unpack(marks))
    local scores, clock = redis.call('ZMSCORE', turns, unpack(members_of(marks, states))), (numbers_of(states[1]))
    local placed, known = {}, {}
    for i, queue in ipairs(marks) do
      if served_as(domain.settings, queue) then
        local state = scores[i] and states[i + 1] or state_on_return(clock, states[i + 1])
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

  -- Open the closed queues whose time has come.
  open_shut = function(domain, now)
    local turns, opened = turns_key(domain.name), {}
    local until_us = string.format('%.0f', now)
    local members = redis.call('ZRANGE', turns, '(' .. OPEN, until_us, 'BYSCORE', 'LIMIT', 0, MOST_OPENED)
    for i, member in ipairs(members) do opened[2 * i - 1], opened[2 * i] = OPEN, member end
    if #opened > 0 then redis.call('ZADD', turns, unpack(opened)) end
  end

  shut = function(domain, member, until_us)
    redis.call('ZADD', turns_key(domain.name), 'XX', string.format('%.0f', until_us), member)
  end

  leave_turns = function(domain_name, member) redis.call('ZREM', turns_key(domain_name), member) end

  -- Return the first members, in the order of their turns.
  next_in_turn = function(domain, most)
    return redis.call('ZRANGE', turns_key(domain.name), OPEN, OPEN, 'BYSCORE', 'LIMIT', 0, most)
  end

  -- Return the share of the queue of a member. If the member is not valid, or is not the current member of its queue,
  -- remove it and return nil.
  share_at = function(domain, member)
    local share = share_in(domain, string.sub(member, STATE_BYTES + 2))
    local is_its_own = redis.call('HGET', times_key(domain.name), share.queue) == string.sub(member, 1, STATE_BYTES)
    share.member = member
    if is_its_own and share.name then return share end
    leave_turns(domain.name, member)
    return nil
  end

  -- Return when the first closed queue with entries opens, or nil.
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

  -- Ring for a pattern if any queue of its domain may have an entry that could be claimed.
  pass_on_in_turn = function(domains, pattern)
    for _, domain in ipairs(domains) do
      local is_its_own = string.find(domain.settings, ' ' .. pattern .. '=', 1, true)
      if is_its_own and redis.call('ZCOUNT', turns_key(domain.name), MARK, OPEN) > 0 then
        return ring_bell(PREFIX .. 'doorbell:' .. pattern)
      end
    end
  end
end
