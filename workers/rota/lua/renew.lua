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

local tasks, lost, cancelled = PREFIX .. 'tasks', {}, {}
for i = 2, #ARGV do
  local owner = ARGV[i]
  if redis.call('ZSCORE', PREFIX .. 'owners', owner) then
    redis.call('ZADD', PREFIX .. 'owners', 'XX', expires, owner)
    for _, line in ipairs(lines_of(PREFIX .. 'inflight:' .. owner)) do
      local id = id_of(line)
      local is_marked = redis.call('HSTRLEN', tasks, id) == 0 and redis.call('HEXISTS', tasks, id) == 1
      if is_marked then cancelled[#cancelled + 1] = id end
    end
  else
    lost[#lost + 1] = owner
  end
end
return { lost, cancelled }
