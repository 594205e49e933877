-- How many members of `delayed` have no ticket: what other languages scheduled, and nobody adopted yet. Every other
-- member has one, and so has every dead task. A key of another type counts as empty: it stops neither sweeps nor looks.
local function size(command, key)
  local n = redis.pcall(command, PREFIX .. key)
  return type(n) == 'number' and n or 0
end
local function untold()
  return math.max(0, size('ZCARD', 'delayed') + size('ZCARD', 'dead') - size('HLEN', 'tickets'))
end
