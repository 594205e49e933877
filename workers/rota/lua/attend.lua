#!lua flags=allow-oom
-- A consumer's word that it lives and which queues it serves. It learns how the fleet's masters serve these.
-- with: prefix clock numbers lists leases renewal shares
-- KEYS[1]  tasks
-- ARGV
--   lease  ms
--   owner  the consumer
--   queue  each that it serves
-- keys     consumers events-on former idle inflight:* members owners patterns paused progress pulse queues served
--          shares tasks times:* turns:* waiters
-- returns  1, or 0 when the owner is no longer registered and nothing was done; entries in flight that somebody asked
--          to cancel; for each queue its share (see shared/shares.lua), or '' for the plain ones
-- Invariant: a lease is extended, and never given: an owner that was retired stays so.
local now, lease, owner = redis_now(), tonumber(ARGV[1]) * 1000, ARGV[2]
local untill = digits_of(now + lease)
redis.call('HLEN', PREFIX .. 'tasks')
redis.call('HLEN', PREFIX .. 'served')
redis.call('SCARD', PREFIX .. 'queues')
local extended = extend_leases({ owner }, untill)
if #extended == 0 then return { 0, {}, {} } end
note_lease(lease, now)

local cancelled, shares = cancelled_of(extended), {}
for i = 3, #ARGV do
  local queue = ARGV[i]
  local served = whole(redis.call('HGET', PREFIX .. 'served', queue)) or 0
  if served < now + lease then redis.call('HSET', PREFIX .. 'served', queue, untill) end
  redis.call('SADD', PREFIX .. 'queues', queue) -- so that a sweep sees bare pushes to it
  shares[#shares + 1] = published_share(queue, now)
end
redis.pcall('HSET', PREFIX .. 'consumers', owner, table.concat(ARGV, ' ', 3))
return { 1, cancelled, shares }
