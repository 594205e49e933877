-- Return the number of members of `delayed` without a ticket. These are items that other programs have added and that
-- are not adopted yet. All other members and all dead tasks have a ticket, so the number is a difference. A key of the
-- wrong type counts as empty.
-- keys     dead delayed tickets
local function size(command, key)
  local n = redis.pcall(command, key)
  return type(n) == 'number' and n or 0
end
local function unadopted_items()
  local waiting, dead = size('ZCARD', PREFIX .. 'delayed'), size('ZCARD', PREFIX .. 'dead')
  return math.max(0, waiting + dead - size('HLEN', PREFIX .. 'tickets'))
end
