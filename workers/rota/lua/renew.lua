#!lua flags=allow-oom
-- Extend leases: the master's word that these owners live.
-- with: prefix clock numbers lists leases renewal
-- KEYS[1]  tasks
-- ARGV     lease ms, then up to 100 owners
-- returns  owners that are no longer registered; entries in flight that somebody asked to cancel
local now, lease = redis_now(), tonumber(ARGV[1]) * 1000
local expires = digits_of(now + lease)
redis.call('HLEN', PREFIX .. 'tasks')
local extended, lost = extend_leases({ unpack(ARGV, 2) }, expires)
note_lease(lease, now)
return { lost, cancelled_of(extended) }
