-- Count the running tasks of each queue again, from the in-flight lists of the registered owners.
-- keys     counts inflight:* owners rotation
local OWNERS_A_CHECK = 1000 -- Lua can unpack only a few thousand values
local function running_by_queue()
  local running = {}
  local function add_tasks_of(list)
    for _, line in ipairs(lines_of(list)) do
      local e = parse_entry(line)
      if e then running[e.queue] = (running[e.queue] or 0) + 1 end
    end
  end
  local owners = redis.call('ZRANGE', PREFIX .. 'owners', 0, -1)
  for first = 1, #owners, OWNERS_A_CHECK do
    local lists = {}
    local last = math.min(first + OWNERS_A_CHECK - 1, #owners)
    for i = first, last do lists[#lists + 1] = PREFIX .. 'inflight:' .. owners[i] end
    -- For idle owners, one command shows that all of their lists are empty.
    if redis.call('EXISTS', unpack(lists)) > 0 then
      for _, list in ipairs(lists) do add_tasks_of(list) end
    end
  end
  return running
end

local function replace_counts(prefix, numbers)
  local counts, stale = PREFIX .. 'counts', {}
  for _, field in ipairs(redis.call('HKEYS', counts)) do
    if string.sub(field, 1, #prefix) == prefix then stale[#stale + 1] = field end
  end
  for first = 1, #stale, 500 do redis.call('HDEL', counts, unpack(stale, first, math.min(first + 499, #stale))) end
  for name, number in pairs(numbers) do redis.call('HSET', counts, prefix .. name, digits_of(number)) end
end

-- If another program wrote to the rotation, a queue could be held back or preferred for a long time. So delete a state
-- that is not valid, and a state so far ahead of its domain that no claim with a sensible weight could have written it.
local MOST_AHEAD, STATE_SIZE = 1e12, 33
local function time_of(state)
  local time = #state == STATE_SIZE and string.match(state, '^(%d+) %d+$')
  return time and tonumber(time)
end
local function repair_rotation()
  -- A key of the wrong type must not stop sweeps, although it stops turns.
  local states, clocks = redis.pcall('HGETALL', PREFIX .. 'rotation'), {}
  for i = 1, #states, 2 do clocks[states[i]] = time_of(states[i + 1]) end
  for i = 1, #states, 2 do
    local domain, time = string.match(states[i], '^%S*'), time_of(states[i + 1])
    if not time or time - (clocks[domain] or 0) > MOST_AHEAD then
      redis.call('HDEL', PREFIX .. 'rotation', states[i])
    end
  end
end
