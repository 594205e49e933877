#!lua flags=allow-oom
-- Extend leases: the master's word that these owners live.
-- with: prefix clock numbers lists leases renewal
-- KEYS[1]  tasks
-- ARGV
--   lease   ms
--   owners  up to 100
-- keys     inflight:* owners pulse tasks
-- returns  owners that are no longer registered; entries in flight that somebody asked to cancel
-- Invariant: a lease is extended, and never given: an owner that was retired stays so.
local now, lease = redis_now(), tonumber(ARGV[1]) * 1000
local owners = { unpack(ARGV, 2) }
local expires = digits_of(now + lease)
redis.call('HLEN', PREFIX .. 'tasks')
local extended, lost = extend_leases(owners, expires)
note_lease(lease, now)
return { lost, cancelled_of(extended) }
