#!lua flags=allow-oom
-- Renew a consumer's lease, and publish which queues it serves. Return the settings with which masters serve these
-- queues.
-- with: prefix clock numbers lists leases renewal shares
-- KEYS[1]  tasks
-- ARGV
--   lease  length of the lease in milliseconds
--   owner  owner name of the consumer
--   queue  each queue that the consumer serves
-- keys     consumers events-on former idle inflight:* members owners patterns paused progress pulse queues served
--          shares tasks times:* turns:* waiters
-- returns  0|1 whether the owner is registered (if not, nothing was changed); the entries in flight whose tasks were
--          cancelled; the settings of each queue (see shared/shares.lua), or '' for the defaults
-- Invariant: a lease is only extended, never created. A reaped owner stays reaped.
local now, lease, owner = redis_now(), tonumber(ARGV[1]) * 1000, ARGV[2]
local until_us = digits_of(now + lease)
redis.call('HLEN', PREFIX .. 'tasks')
redis.call('HLEN', PREFIX .. 'served')
redis.call('SCARD', PREFIX .. 'queues')
local extended = extend_leases({ owner }, until_us)
if #extended == 0 then return { 0, {}, {} } end
note_lease(lease, now)

local cancelled, shares = cancelled_of(extended), {}
for i = 3, #ARGV do
  local queue = ARGV[i]
  local served = whole(redis.call('HGET', PREFIX .. 'served', queue)) or 0
  if served < now + lease then redis.call('HSET', PREFIX .. 'served', queue, until_us) end
  -- A sweep checks only the queues of this set for items that were pushed without the client.
  redis.call('SADD', PREFIX .. 'queues', queue)
  shares[#shares + 1] = published_share(queue, now)
end
redis.pcall('HSET', PREFIX .. 'consumers', owner, table.concat(ARGV, ' ', 3))
return { 1, cancelled, shares }
