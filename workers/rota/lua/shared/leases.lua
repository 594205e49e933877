-- Leases may differ, from node to node or before and after a reload. Whoever judges those of others goes by the longest
-- in use: that was asked for within twice its own length. It stands in `pulse` with the time of the last such call. A
-- `pulse` of another type stops sweeps, and no life.
-- keys     pulse
local LONGEST_LEASE = 31 * 86400 * 1000000 -- a month
local function lease_in_use(lease_text, at_text, now)
  local lease, at = whole(lease_text) or 0, whole(at_text) or 0
  if lease > LONGEST_LEASE then return 0, 0 end -- not of our making
  return now - at <= 2 * lease and lease or 0, at
end

local function note_lease(lease, now)
  local known = redis.pcall('HMGET', PREFIX .. 'pulse', 'lease', 'lease_at')
  if not known.err and lease < lease_in_use(known[1], known[2], now) then return end
  redis.pcall('HSET', PREFIX .. 'pulse', 'lease', digits_of(lease), 'lease_at', digits_of(now))
end

-- Work that one poller does for the whole fleet. It has the duty by calling again and again; when it has not for so
-- many microseconds, whoever calls next takes over. `who` and `untill` are the fields of `pulse` that say so. Answers
-- 0|1.
local function has_duty(name, who, untill, microseconds, now)
  if name == '' then return 0 end
  local pulse = PREFIX .. 'pulse'
  local known = redis.call('HMGET', pulse, who, untill)
  local ends = whole(known[2]) or 0
  if known[1] ~= name and ends > now and ends <= now + microseconds then return 0 end
  redis.call('HSET', pulse, who, name, untill, digits_of(now + microseconds))
  return 1
end
