#!lua flags=allow-oom
-- Register owners that have in-flight lists but are not registered, for the length of one lease. When the lease
-- expires, they are reaped like any other owner. Running tasks are counted again, because an earlier count did not
-- include the tasks in these lists.
-- with: prefix clock numbers entry lists doorbell recount
-- KEYS[1]  tasks
-- ARGV
--   lease  length of the lease in milliseconds
--   owner  each owner whose list was found
-- keys     counts doorbell doorbell:* events-on former idle inflight:* members owners patterns paused progress queue:*
--          rotation served tasks times:* turns:* waiters
-- returns  the number of owners that were not registered
-- Invariant: an owner gets only one lease, even if it is found several times. No task is changed.
local lease = tonumber(ARGV[1]) * 1000
local expires = digits_of(redis_now() + lease)
redis.call('HLEN', PREFIX .. 'counts')
local adopted = 0
for i = 2, #ARGV do
  local owner = ARGV[i]
  local registered = redis.call('ZSCORE', PREFIX .. 'owners', owner)
  if not registered and length(PREFIX .. 'inflight:' .. owner) > 0 then
    redis.call('ZADD', PREFIX .. 'owners', expires, owner)
    adopted = adopted + 1
  end
end
if adopted > 0 then replace_counts('running:', running_by_queue()) end
return adopted
