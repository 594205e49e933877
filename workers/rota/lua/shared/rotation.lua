-- Fair rotation inside a domain: start-time fair queueing (Goyal, Vin, Cheng 1996), kept in Redis so that it is one
-- rotation for the whole fleet and survives restarts. `DOMAIN` -> `clock turn`, `DOMAIN QUEUE` -> `virtual-time turn`;
-- `turn` numbers the servings, so that ties go to the least recently served.
local function two_numbers(text)
  local first, second = string.match(text or '', '^(-?%d+) (%d+)$')
  return tonumber(first) or 0, tonumber(second) or 0
end

-- Of these queues the one to serve next.
local function next_in_rotation(domain, queues)
  if #queues == 1 then return 1 end
  local fields = {}
  for i, queue in ipairs(queues) do fields[i] = domain .. ' ' .. queue end
  local states = redis.call('HMGET', PREFIX .. 'rotation', unpack(fields))
  local best, best_time, best_turn
  for i = 1, #queues do
    local time, turn = two_numbers(states[i])
    if not best or time < best_time or (time == best_time and turn < best_turn) then
      best, best_time, best_turn = i, time, turn
    end
  end
  return best
end

local function charge(share, entries)
  local field = share.domain .. ' ' .. share.queue
  local states = redis.call('HMGET', PREFIX .. 'rotation', share.domain, field)
  local clock, turn = two_numbers(states[1])
  local start = math.max(clock, (two_numbers(states[2])))
  redis.call('HSET', PREFIX .. 'rotation', share.domain, string.format('%.0f %.0f', start, turn + 1), field,
    string.format('%.0f %.0f', start + entries * share.cost, turn + 1))
end

-- Give back the price of entries that were claimed and not served.
local function credit(share, entries)
  if not share or entries == 0 then return end
  local field = share.domain .. ' ' .. share.queue
  local time, turn = two_numbers(redis.call('HGET', PREFIX .. 'rotation', field))
  redis.call('HSET', PREFIX .. 'rotation', field, string.format('%.0f %.0f', time - entries * share.cost, turn))
end
