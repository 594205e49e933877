#!lua flags=allow-oom
-- Publish a master's heartbeat. The heartbeat shows that the node is alive. It also defines which queues the node
-- serves and with which settings, how many ended tasks the fleet remembers, and how many task events it keeps.
-- Consumers serve the queues with the same settings.
-- with: prefix clock numbers doorbell ends share_text
-- KEYS[1]  tasks
-- ARGV
--   node              name of the node
--   heartbeat         JSON, see docs/protocol.md
--   ttl               lifetime of the heartbeat in milliseconds
--   keep              number of ended tasks to remember
--   events            number of task events to keep, 0 for none
--   settings          settings of the queues that do not have the default settings, in the form of
--                     shared/share_text.lua
--   domains           number of domains with patterns that follow; a domain is the set of queues that a pool serves in
--                     one tier
--   domain, settings  name and settings of a domain with patterns; `domains` x
--   queue             each queue that the node serves
-- keys     closed conditions doorbell doorbell:* ends ends-sealed ends-untold ends:* events-on former idle members meta
--          nodes patterns paused progress pulse queue:* queues ready served shares tasks times:* turns:* waiters
-- returns  the number of nodes that were alive at most a second ago, and 0|1 whether the check of conditions.lua is
--          needed, because a queue is paused, was found closed, or may have a condition
-- A node's request for events (`events`) stays in force after the node has ended, until another master announces
-- itself. So events are written even for tasks that are enqueued while the fleet is down. The last heartbeat of a
-- silent node is kept for 5 minutes, so that people can see it.
-- Invariant: the queues and settings that are published here are valid only for `ttl`, so that a dead master does not
-- count as serving these queues.
local KEPT_US, READ_AFTER = 300 * 1000000, 1000000
local now = redis_now()
local node, heartbeat, ttl, keep, events, settings, domains = unpack(ARGV, 1, 7)
local until_us = digits_of(now + tonumber(ttl) * 1000)
local NODES, PULSE = PREFIX .. 'nodes', PREFIX .. 'pulse'
redis.call('HLEN', PREFIX .. 'served')
redis.call('SCARD', PREFIX .. 'queues')

-- Forget the nodes that have been silent for long, and the requests for events of nodes that are not alive. Return the
-- number of nodes that are alive, counting this one.
local function read_nodes()
  local nodes, alive, lives = redis.call('HGETALL', NODES), 1, { [node] = true }
  for i = 1, #nodes, 2 do
    local ends = whole(string.match(nodes[i + 1], '^(%d+) ')) or 0
    if ends + KEPT_US <= now then
      redis.call('HDEL', NODES, nodes[i])
    elseif ends > now and not lives[nodes[i]] then
      alive, lives[nodes[i]] = alive + 1, true
    end
  end
  for _, other in ipairs(redis.pcall('HKEYS', EVENTS_ON)) do
    if not lives[other] then redis.call('HDEL', EVENTS_ON, other) end
  end
  return alive
end

-- If each of many masters read all nodes with each heartbeat, the cost would grow with the square of their number. So
-- they are read once a second, and when a node is new. In between, the last count is returned.
local function count_nodes()
  local is_known = redis.call('HEXISTS', NODES, node) == 1
  local last = redis.pcall('HMGET', PULSE, 'nodes_at', 'nodes')
  local read_at = whole(last[1])
  if is_known and read_at and read_at <= now and now < read_at + READ_AFTER then return whole_or_zero(last[2]) end
  local alive = read_nodes()
  redis.pcall('HSET', PULSE, 'nodes_at', digits_of(now), 'nodes', alive)
  return alive
end
local alive = count_nodes()
redis.pcall('HSET', PREFIX .. 'meta', 'ended_keep', keep) -- a key of the wrong type must not stop the heartbeat
if keep == '0' then
  local numbers = redis.pcall('LRANGE', SEALED, 0, -1)
  for _, number in ipairs(numbers.err and {} or numbers) do redis.call('UNLINK', sealed_key(number)) end
  redis.call('UNLINK', ENDS, SEALED, UNTOLD)
end
redis.call('HSET', NODES, node, until_us .. ' ' .. heartbeat)
for queue, at in string.gmatch(settings, ' ([^ =]+)=()') do
  local share = string.sub(settings, at, read_setting({}, settings, at) - 1)
  redis.pcall('HSET', PREFIX .. 'shares', queue, until_us .. ' ' .. share)
end
-- A key of the wrong type disables events, but does not stop the heartbeat.
if events == '0' then
  redis.pcall('HDEL', EVENTS_ON, node)
else
  redis.pcall('HSET', EVENTS_ON, node, events)
end

-- Publish a domain with patterns, so that scripts mark its queues. A new domain begins with a mark for every ready
-- queue.
local function announce_domain(domain, settings)
  local is_known = redis.pcall('HEXISTS', PATTERNS, domain)
  redis.pcall('HSET', PATTERNS, domain, until_us .. settings)
  if is_known ~= 0 then return end
  local turns = PREFIX .. 'turns:' .. domain
  redis.pcall('ZUNIONSTORE', turns, 2, turns, PREFIX .. 'ready', 'WEIGHTS', 1, MARK, 'AGGREGATE', 'MIN')
  for pattern in string.gmatch(settings, ' ([^ =]*%*)=%d') do ring_bell(PREFIX .. 'doorbell:' .. pattern) end
end

-- Remove expired domains with their turns and times. Only live masters call this script, so the domains are kept while
-- no master is alive.
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
  redis.call('HSET', PREFIX .. 'served', ARGV[i], until_us)
  -- A sweep checks only the queues of this set for items that were pushed without the client.
  if not is_pattern(ARGV[i]) then redis.call('SADD', PREFIX .. 'queues', ARGV[i]) end
end
return { alive, math.min(1, redis.call('EXISTS', PREFIX .. 'paused', PREFIX .. 'conditions', PREFIX .. 'closed')) }
