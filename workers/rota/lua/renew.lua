#!lua flags=allow-oom
-- Extend the leases of a master's workers.
-- with: prefix clock numbers lists leases renewal
-- KEYS[1]  tasks
-- ARGV
--   lease   length of the lease in milliseconds
--   owners  owners whose processes are alive; up to 100
-- keys     inflight:* owners pulse tasks
-- returns  the owners that are no longer registered; the entries in flight whose tasks were cancelled
-- Invariant: a lease is only extended, never created. A reaped owner stays reaped.
local now, lease = redis_now(), tonumber(ARGV[1]) * 1000
local owners = { unpack(ARGV, 2) }
local expires = digits_of(now + lease)
redis.call('HLEN', PREFIX .. 'tasks')
local extended, lost = extend_leases(owners, expires)
note_lease(lease, now)
return { lost, cancelled_of(extended) }
