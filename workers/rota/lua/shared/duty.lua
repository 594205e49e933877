-- Work that one poller does for the whole fleet. It has the duty by calling again and again; when it has not for so
-- many microseconds, whoever calls next takes over. `who` and `untill` are the fields of `pulse` that say so. Answers
-- 0|1.
-- keys     pulse
local function has_duty(name, who, untill, microseconds, now)
  if name == '' then return 0 end
  local pulse = PREFIX .. 'pulse'
  local known = redis.call('HMGET', pulse, who, untill)
  local ends = whole(known[2]) or 0
  if known[1] ~= name and ends > now and ends <= now + microseconds then return 0 end
  redis.call('HSET', pulse, who, name, untill, digits_of(now + microseconds))
  return 1
end
