-- Leases may have different lengths on different nodes, and before and after a reload. A script that decides about
-- other owners uses the longest lease in use, which is the longest that any node has requested recently. "Recently"
-- means less than twice the length of that lease ago. `pulse` has that lease and the time of the last such request. A
-- `pulse` of the wrong type stops sweeps, but not renewals.
-- keys     pulse
local LONGEST_LEASE = 31 * 86400 * 1000000 -- a month
local function lease_in_use(lease_text, at_text, now)
  local lease, at = whole(lease_text) or 0, whole(at_text) or 0
  if lease > LONGEST_LEASE then return 0, 0 end -- not written by Rota
  return now - at <= 2 * lease and lease or 0, at
end

local function note_lease(lease, now)
  local known = redis.pcall('HMGET', PREFIX .. 'pulse', 'lease', 'lease_at')
  if not known.err and lease < lease_in_use(known[1], known[2], now) then return end
  redis.pcall('HSET', PREFIX .. 'pulse', 'lease', digits_of(lease), 'lease_at', digits_of(now))
end

-- Return 1 if this poller is the leader for a kind of work that one poller does for the whole fleet, else 0. The leader
-- stays the leader if it calls again within `microseconds`. Otherwise the next caller becomes the leader. `name_field`
-- and `until_field` are the fields of `pulse` with the name of the leader and the time until which it leads.
local function leads(name, name_field, until_field, microseconds, now)
  if name == '' then return 0 end
  local pulse = PREFIX .. 'pulse'
  local known = redis.call('HMGET', pulse, name_field, until_field)
  local ends = whole(known[2]) or 0
  if known[1] ~= name and ends > now and ends <= now + microseconds then return 0 end
  redis.call('HSET', pulse, name_field, name, until_field, digits_of(now + microseconds))
  return 1
end
