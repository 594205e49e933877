-- Forget idle queues. Queues that are served only through a pattern come and go. When such a queue has been empty for a
-- while, all its keys are removed. `idle` maps each empty queue to the time at which a sweep first found it empty.
-- with: numbers doorbell
-- keys     counts doorbell:* idle paused queues rates ready served totals

-- Return the pattern of a queue that is served only through a pattern, otherwise nil.
local function pattern_of(queue, servings, now)
  if #servings == 0 then return nil end
  for _, serving in ipairs(servings) do
    if serving.name == queue then return nil end
  end
  local own = redis.pcall('HGET', PREFIX .. 'served', queue)
  return (whole(type(own) == 'string' and own) or 0) <= now and servings[1].name or nil
end

-- Whether a queue has no tasks in any state, is not delayed by a rate limit, and is not paused.
local function is_empty(queue, now)
  if entries_in(queue) > 0 or redis.pcall('SISMEMBER', PREFIX .. 'paused', queue) == 1 then return false end
  local fields = { 'running:' .. queue, 'delayed:' .. queue, 'dead:' .. queue }
  for _, number in ipairs(redis.call('HMGET', PREFIX .. 'counts', unpack(fields))) do
    if number and number ~= '0' then return false end
  end
  local paid_off = redis.pcall('HGET', PREFIX .. 'rates', queue)
  return (whole(type(paid_off) == 'string' and paid_off) or 0) <= now
end

-- Delete the counters of a queue. The number of tasks that it has accepted is added to that of its pattern.
local function forget_counters(queue, pattern)
  redis.call('HDEL', PREFIX .. 'counts', 'running:' .. queue, 'delayed:' .. queue, 'dead:' .. queue)
  local accepted = redis.pcall('HGET', PREFIX .. 'totals', 'accepted:' .. queue)
  accepted = type(accepted) == 'string' and whole(accepted)
  if accepted and type(redis.pcall('HINCRBY', PREFIX .. 'totals', 'accepted:' .. pattern, accepted)) == 'number' then
    redis.call('HDEL', PREFIX .. 'totals', 'accepted:' .. queue)
  end
end

local function forget_times(queue, domain)
  local state = redis.pcall('HGET', times_key(domain), queue)
  redis.pcall('ZREM', turns_key(domain), queue, (type(state) == 'string' and state or '') .. ' ' .. queue)
  redis.pcall('HDEL', times_key(domain), queue)
end

local function forget(queue, pattern, servings)
  forget_counters(queue, pattern)
  for _, serving in ipairs(servings) do forget_times(queue, serving.domain) end
  redis.pcall('HDEL', PREFIX .. 'rates', queue)
  redis.pcall('HDEL', PREFIX .. 'served', queue)
  redis.call('UNLINK', PREFIX .. 'doorbell:' .. queue)
  redis.call('SREM', PREFIX .. 'ready', queue)
  redis.call('SREM', PREFIX .. 'queues', queue)
  redis.pcall('ZREM', PREFIX .. 'idle', queue)
end

-- Record when a queue of a pattern is first found empty, and forget the queue when it has been empty for `longest`
-- microseconds. Sweeps call this.
local function check_idle(queue, now, longest)
  local servings = any_patterns and servings_of(queue) or {}
  local pattern = pattern_of(queue, servings, now)
  if not pattern or not is_empty(queue, now) then return redis.pcall('ZREM', PREFIX .. 'idle', queue) end
  local since = tonumber(redis.pcall('ZSCORE', PREFIX .. 'idle', queue) or '')
  if not since or since > now then
    redis.pcall('ZADD', PREFIX .. 'idle', digits_of(now), queue)
  elseif now - since >= longest then
    forget(queue, pattern, servings)
  end
end
