-- How many members of `delayed` have no ticket: what other languages scheduled, and nobody adopted yet. Every other
-- member has one, and so has every dead task. A key of another type counts as empty: it stops neither sweeps nor looks.
-- keys     dead delayed tickets
local function size(command, key)
  local n = redis.pcall(command, key)
  return type(n) == 'number' and n or 0
end
local function untold()
  local waiting, dead = size('ZCARD', PREFIX .. 'delayed'), size('ZCARD', PREFIX .. 'dead')
  return math.max(0, waiting + dead - size('HLEN', PREFIX .. 'tickets'))
end
