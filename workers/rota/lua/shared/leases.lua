-- Leases may differ, from node to node or before and after a reload. Whoever judges those of others goes by the longest
-- in use: that was asked for within twice its own length. It stands in `pulse` with the time of the last such call.
local function longest_lease(now)
  local known = redis.call('HMGET', PREFIX .. 'pulse', 'lease', 'lease_at')
  local lease, at = tonumber(known[1] or '') or 0, tonumber(known[2] or '') or 0
  return math.abs(now - at) <= 2 * lease and lease or 0
end

local function note_lease(lease, now)
  if lease < longest_lease(now) then return end
  redis.call('HSET', PREFIX .. 'pulse', 'lease', string.format('%.0f', lease), 'lease_at', string.format('%.0f', now))
end
