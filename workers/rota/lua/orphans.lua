#!lua flags=allow-oom
-- Give in-flight lists whose owner nobody registered one lease; then they are retired like any other. What runs is
-- counted anew with them: a count that was taken while they had no owner lacks what they hold.
-- with: prefix clock numbers entry lists doorbell recount
-- KEYS[1]  tasks
-- ARGV
--   lease  ms
--   owner  each whose list was seen
-- keys     counts doorbell doorbell:* events-on former idle inflight:* members owners patterns paused progress queue:*
--          rotation served tasks times:* turns:* waiters
-- returns  how many were orphans
-- Invariant: an owner is given one lease, whether it is found once or often; no task is touched.
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
