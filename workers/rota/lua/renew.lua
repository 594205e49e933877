#!lua flags=allow-oom
-- Extend leases: the master's word that these owners live.
-- with: prefix clock
-- KEYS[1]  tasks
-- ARGV     lease ms, then up to 100 owners
-- returns  owners that are no longer registered; ids in flight that somebody asked to cancel
local LOOK = 32 -- an owner's list is as long as its claim, which is shorter than this
local expires = string.format('%.0f', redis_now() + tonumber(ARGV[1]) * 1000)
redis.call('HLEN', PREFIX .. 'tasks')

local function cancelled_of(owner, ids)
  for _, text in ipairs(redis.call('LRANGE', PREFIX .. 'inflight:' .. owner, 0, LOOK - 1)) do
    local id = string.match(text, '^%S+')
    if redis.call('HSTRLEN', PREFIX .. 'tasks', id) == 0 then ids[#ids + 1] = id end
  end
end

local lost, cancelled = {}, {}
for i = 2, #ARGV do
  local owner = ARGV[i]
  if redis.call('ZSCORE', PREFIX .. 'owners', owner) then
    redis.call('ZADD', PREFIX .. 'owners', 'XX', expires, owner)
    cancelled_of(owner, cancelled)
  else
    lost[#lost + 1] = owner
  end
end
return { lost, cancelled }
