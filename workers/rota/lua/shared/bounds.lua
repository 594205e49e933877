-- The limits on how many tasks of a queue may start: its cap, its rate limit and its condition. `turn` includes this
-- file only where the tiers have settings, because creating these functions takes time, and most fleets set no limits.
-- `bounds` has the functions that other files call, and these fields:
--   now   Redis time in microseconds
--   wait  microseconds until a rate limit or a condition opens the first of the closed queues that have entries; 0 if
--         there is no such queue
-- with: tiers turns condition rate
-- keys     counts rates
local function condition_on(bounds, share) return decision_on(share.queue, share.condition, bounds.now) end
local function is_open(bounds, share) return not share.condition or condition_on(bounds, share).open end

-- `rates` has the time up to which the starts so far have used the rate of the queue (see rate.lua). Return by how many
-- microseconds this time is ahead of now, but at most the slack and one interval. The second value is true if the
-- stored time is further ahead than that, because it was written before the clock was set back, or with a slower rate.
local function rate_ahead(bounds, share)
  local empty_at = tonumber(redis.call('HGET', PREFIX .. 'rates', share.queue) or '') or 0
  local full = share.interval + slack_of(share.interval, share.burst)
  return math.min(math.max(0, empty_at - bounds.now), full), empty_at - bounds.now > full
end

local function spend_rate(bounds, share, entries)
  if share.interval == 0 then return end
  local empty_at = bounds.now + rate_ahead(bounds, share) + entries * share.interval
  redis.call('HSET', PREFIX .. 'rates', share.queue, string.format('%.0f', empty_at))
end

-- Update the limits after entries of a queue were claimed. If this call may claim more entries of the queue, the
-- condition is evaluated again, because it may depend on the number of running tasks.
local function note_starts(bounds, share, entries, may_be_more)
  if share.is_bounded then spend_rate(bounds, share, entries) end
  if share.condition then redis.pcall('HDEL', CLOSED, share.queue) end
  if may_be_more then decisions[share.queue] = nil end
end

-- Return how many entries the cap and the rate allow to start now. If the rate allows none, the second value is the
-- number of microseconds until it allows the next start, otherwise 0.
local function room(bounds, share)
  local allowed, wait = math.huge, 0
  if share.cap > 0 then
    local running = tonumber(redis.call('HGET', PREFIX .. 'counts', 'running:' .. share.queue) or '') or 0
    allowed = share.cap - math.max(0, running)
  end
  if share.interval > 0 then
    local unused = slack_of(share.interval, share.burst) - rate_ahead(bounds, share)
    local starts = math.floor(unused / share.interval) + 1
    if starts < 1 then wait = math.ceil(-unused) end
    allowed = math.min(allowed, starts)
  end
  return allowed, wait
end

-- Whether each start can change how many other entries may start.
local function depends_on_starts(bounds, share)
  return share.cap > 0 or share.interval > 0 or share.condition and condition_on(bounds, share).counts
end

-- Return how many entries may be claimed one by one before the limits have to be checked again. This is 1 if the
-- condition depends on the number of running tasks, because it must then be evaluated before each start.
local function room_one_by_one(bounds, share)
  return share.condition and condition_on(bounds, share).counts and 1 or (room(bounds, share))
end

local function keeps_shut(bounds, share) return room(bounds, share) < 1 or not is_open(bounds, share) end

-- Return the time in microseconds until which no entry of the queue may start, SHUT if it will not open at a known
-- time, or nil if an entry may start now. The condition is evaluated last, and only if cap and rate allow a start.
local function shut_until(bounds, share)
  if not share.is_bounded then return nil end
  local allowed, after = room(bounds, share)
  if share.interval > 0 then
    local _, is_left_over = rate_ahead(bounds, share)
    -- Correct the stored time, because otherwise the queue would stay closed for too long.
    if is_left_over then spend_rate(bounds, share, 0) end
  end
  if allowed < 1 then return after > 0 and bounds.now + after or SHUT end
  return not is_open(bounds, share) and bounds.now + condition_on(bounds, share).after or nil
end

local function recheck_after(bounds, after)
  if bounds.wait == 0 or after < bounds.wait then bounds.wait = after end
end

-- Whether entries of the queue with this index may start now.
local function has_room(bounds, domain, index)
  local until_us = shut_until(bounds, share_in(domain, ARGV[index]))
  if until_us and until_us < SHUT and entries_in(ARGV[index]) > 0 then recheck_after(bounds, until_us - bounds.now) end
  return not until_us
end

local function make_bounds(now)
  return {
    now = now, wait = 0, note_starts = note_starts, room = room, room_one_by_one = room_one_by_one,
    depends_on_starts = depends_on_starts, keeps_shut = keeps_shut, shut_until = shut_until, has_room = has_room,
    recheck_after = recheck_after,
  }
end
