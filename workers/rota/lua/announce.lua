#!lua flags=allow-oom
-- A master's heartbeat: that it lives, which queues it serves, how many ends are to be remembered, how many task events
-- it wants kept, and how queues are to be served, for consumers to do alike.
-- with: prefix clock numbers doorbell ends
-- KEYS[1]  tasks
-- ARGV
--   node              its name
--   heartbeat         JSON
--   ttl               ms
--   keep              how many ends to remember
--   events            how many events to keep, 0 for none
--   settings          of the queues that are not plain, as in the tiers of a turn
--   domains           how many domains with patterns follow
--   domain, settings  so many x
--   queue             each queue that the node serves
-- keys     closed conditions doorbell doorbell:* ends ends-sealed ends-untold ends:* events-on former idle members meta
--          nodes patterns paused progress queue:* queues ready served shares tasks times:* turns:* waiters
-- returns  how many nodes are alive, and whether anything may be closed to claims, or has been 0|1: see conditions.lua
-- The wish for events outlives its node for as long as no other master is there: what is enqueued while the fleet is
-- away is told too. Of a node that fell silent its last heartbeat stays for some minutes, for people.
-- Invariant: each thing that is published here holds for the ttl alone, so that a master that is gone is forgotten.
local KEPT_US = 300 * 1000000
local now = redis_now()
local node, heartbeat, ttl, keep, events, settings, domains = unpack(ARGV, 1, 7)
local untill = digits_of(now + tonumber(ttl) * 1000)
local events_on = PREFIX .. 'events-on'
local nodes = redis.call('HGETALL', PREFIX .. 'nodes')
redis.call('HLEN', PREFIX .. 'served')
redis.call('SCARD', PREFIX .. 'queues')
local alive, lives = 1, { [node] = true }
for i = 1, #nodes, 2 do
  local ends = whole(string.match(nodes[i + 1], '^(%d+) ')) or 0
  if ends + KEPT_US <= now then
    redis.call('HDEL', PREFIX .. 'nodes', nodes[i])
  elseif ends > now and not lives[nodes[i]] then
    alive, lives[nodes[i]] = alive + 1, true
  end
end
redis.pcall('HSET', PREFIX .. 'meta', 'ended_keep', keep) -- the memory of ends stops nothing, whatever stands there
if keep == '0' then
  local numbers = redis.pcall('LRANGE', SEALED, 0, -1)
  for _, number in ipairs(numbers.err and {} or numbers) do redis.call('UNLINK', sealed_key(number)) end
  redis.call('UNLINK', ENDS, SEALED, UNTOLD)
end
redis.call('HSET', PREFIX .. 'nodes', node, untill .. ' ' .. heartbeat)
for queue, share in string.gmatch(settings, ' ([^ =]+)=(%d+ %d+ %d+ %d+:?%S*)') do
  redis.pcall('HSET', PREFIX .. 'shares', queue, untill .. ' ' .. share)
end
-- Of another type it stops events, and no heartbeat.
if events == '0' then
  redis.pcall('HDEL', events_on, node)
else
  redis.pcall('HSET', events_on, node, events)
end
for _, other in ipairs(redis.pcall('HKEYS', events_on)) do
  if not lives[other] then redis.call('HDEL', events_on, other) end
end

-- Where queues of patterns are to be marked. A domain that is new there begins with a mark for all that waits.
local function announce_domain(domain, settings)
  local is_known = redis.pcall('HEXISTS', PATTERNS, domain)
  redis.pcall('HSET', PATTERNS, domain, untill .. settings)
  if is_known ~= 0 then return end
  local turns = PREFIX .. 'turns:' .. domain
  redis.pcall('ZUNIONSTORE', turns, 2, turns, PREFIX .. 'ready', 'WEIGHTS', 1, MARK, 'AGGREGATE', 'MIN')
  for pattern in string.gmatch(settings, ' ([^ =]*%*)=%d') do ring_bell(PREFIX .. 'doorbell:' .. pattern) end
end

-- Those of masters that are gone leave with what stood for them; while no master is there at all, they stay.
local function forget_domains()
  local found = redis.pcall('HGETALL', PATTERNS)
  for i = 1, #found, 2 do
    if (whole(string.match(found[i + 1], '^%d*')) or 0) <= now then
      redis.call('HDEL', PATTERNS, found[i])
      redis.call('UNLINK', PREFIX .. 'turns:' .. found[i], PREFIX .. 'times:' .. found[i])
    end
  end
end

local first_queue = 8 + 2 * tonumber(domains)
for i = 8, first_queue - 1, 2 do announce_domain(ARGV[i], ARGV[i + 1]) end
forget_domains()
for i = first_queue, #ARGV do
  redis.call('HSET', PREFIX .. 'served', ARGV[i], untill)
  -- So that a sweep sees bare pushes.
  if not is_pattern(ARGV[i]) then redis.call('SADD', PREFIX .. 'queues', ARGV[i]) end
end
return { alive, math.min(1, redis.call('EXISTS', PREFIX .. 'paused', PREFIX .. 'conditions', PREFIX .. 'closed')) }
