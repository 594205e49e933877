-- The only clock of the scripts: Redis time, in whole microseconds. A double represents such a time exactly until the
-- year 2255.
local function redis_now()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000000 + tonumber(time[2])
end
-- Scores of `delayed` and `dead` are Unix seconds, because producers in other languages write them. A ZADD from outside
-- may store any number: a time before 1970 counts as 1970, and a time too far ahead to be exact counts as LATEST.
local LATEST = 9e15
local function to_score(us) return string.format('%.6f', us / 1000000) end
local function from_score(score)
  local us = math.floor((tonumber(score) or 0) * 1000000 + 0.5)
  if us ~= us or us < 0 then return 0 end
  return math.min(us, LATEST)
end
