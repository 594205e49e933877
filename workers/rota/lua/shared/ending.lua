-- How the life of a task goes on or ends. The caller has taken the entry from wherever it stood.

-- Free the task's unique key, if the key is still its own (one held for a time may have passed to another).
local function free_unique_key(e)
  if not string.find(e.flag, 'u', 1, true) then return end
  local key = redis.call('HGET', PREFIX .. 'keys', e.id)
  if not key then return end
  redis.call('HDEL', PREFIX .. 'keys', e.id)
  if redis.pcall('GET', PREFIX .. 'unique:' .. key) == e.id then redis.call('DEL', PREFIX .. 'unique:' .. key) end
end

-- What a task that ends may leave elsewhere: its unique key, the account of its last crash, the record of former lives.
-- Its flag says of each whether it is there, so one that has none costs a comparison.
local function clear_up(e)
  if e.flag == '-' then return end
  free_unique_key(e)
  if string.find(e.flag, '%u') then redis.pcall('HDEL', PREFIX .. 'epitaphs', e.id) end
  if string.find(e.flag, '%d') then numbered_life_ended(e.id) end
end

-- A task that goes on keeps the account of its last crash or loss; the mark, a capital letter, says which it was.
local function keep_account(e, mark, account)
  e.flag = string.gsub(e.flag, '[%u-]', '') .. mark
  redis.call('HSET', PREFIX .. 'epitaphs', e.id, account)
end

local function end_task(e, how)
  local was_live = redis.call('HDEL', PREFIX .. 'tasks', e.id)
  clear_up(e)
  total(how, was_live)
end

-- Set aside for people. A dead task frees its unique key: whoever enqueues next should not wait for a human.
local function bury(e, epitaph, now)
  free_unique_key(e)
  e.flag = string.match(e.flag, '%d+') or '-'
  redis.call('HSET', PREFIX .. 'tickets', e.id, ticket_text(e))
  redis.call('ZADD', PREFIX .. 'dead', to_score(now), e.id)
  redis.call('HSET', PREFIX .. 'epitaphs', e.id, epitaph)
  count('dead:' .. e.queue, 1)
end

local function delay(e, due)
  due = math.min(due, LATEST)
  local first = redis.call('ZRANGE', PREFIX .. 'delayed', 0, 0, 'WITHSCORES')
  redis.call('HSET', PREFIX .. 'tickets', e.id, ticket_text(e))
  redis.call('ZADD', PREFIX .. 'delayed', to_score(due), e.id)
  count('delayed:' .. e.queue, 1)
  if not first[1] or due < from_score(first[2]) then ring_pollers() end
end

-- Somebody put another thing where a lane should be. The task is set aside rather than left in the way of others.
local UNUSABLE = '{"reason":"unusable_lane","error":"a key in the place of the lane of this queue is not a list: delete '
  .. 'that key, then revive this task"}'
local function is_list(lane) return type(redis.pcall('LLEN', lane)) == 'number' end

local BEGUN = '{"reason":"at_most_once","error":"it was started, and its worker was gone before it was known to end"}'

-- Back to the head of its lane; returns false when it had to be set aside, as what has begun. The caller grew one of the
-- counters, so the text is new.
local function give_back(e, now)
  local lane = lane_of(e.queue, e.kind)
  local has_begun = string.find(e.flag, 'b', 1, true)
  if has_begun or not is_list(lane) then
    bury(e, has_begun and BEGUN or UNUSABLE, now)
    return false
  end
  redis.call('LPUSH', lane, entry_text(e))
  redis.call('SADD', PREFIX .. 'ready', e.queue)
  return true
end
