-- Leases may differ, from node to node or before and after a reload. Whoever judges those of others goes by the longest
-- in use: that was asked for within twice its own length. It stands in `pulse` with the time of the last such call. A
-- `pulse` of another type stops sweeps, and no life.
local function longest_lease(now)
  local known = redis.pcall('HMGET', PREFIX .. 'pulse', 'lease', 'lease_at')
  if known.err then return 0 end
  local lease, at = tonumber(known[1] or '') or 0, tonumber(known[2] or '') or 0
  return now - at <= 2 * lease and lease or 0
end

local function note_lease(lease, now)
  if lease < longest_lease(now) then return end
  redis.pcall('HSET', PREFIX .. 'pulse', 'lease', string.format('%.0f', lease), 'lease_at', string.format('%.0f', now))
end
