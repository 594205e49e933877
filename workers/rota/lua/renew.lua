#!lua flags=allow-oom
-- Extend leases: the master's word that these owners live.
-- with: prefix clock numbers lists leases
-- KEYS[1]  tasks
-- ARGV     lease ms, then up to 100 owners
-- returns  owners that are no longer registered; ids in flight that somebody asked to cancel
local now, lease = redis_now(), tonumber(ARGV[1]) * 1000
local expires = digits_of(now + lease)
redis.call('HLEN', PREFIX .. 'tasks')
redis.call('ZCARD', PREFIX .. 'owners')
note_lease(lease, now)

local function cancelled_of(owner, ids)
  for _, line in ipairs(lines_of(PREFIX .. 'inflight:' .. owner)) do
    local id, tasks = id_of(line), PREFIX .. 'tasks'
    if redis.call('HSTRLEN', tasks, id) == 0 and redis.call('HEXISTS', tasks, id) == 1 then ids[#ids + 1] = id end
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
