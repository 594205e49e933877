#!lua flags=allow-oom
-- Exchange the data that nodes need to scale one pool across all nodes. The script stores the load of a node, and lets
-- one node lead the pool. It stores the decisions of the leading node, and returns the loads of the other nodes and the
-- backlog to that node.
-- with: prefix clock numbers doorbell tiers closing
-- KEYS[1]  tasks
-- ARGV
--   pool      name of the pool
--   node      name of the node
--   ttl       for how long the load and the lead are valid, in milliseconds; 0 to withdraw both
--   load      load of the node; the script does not read it
--   known     number of the decision that the node knows, 0 for none
--   decision  new decision, '' for none; it is stored if the node leads
--   tiers     optional: the tiers of the pool, for the backlog
-- keys     closed conditions counts doorbell doorbell:* events-on former idle loads:* members patterns paused progress
--          queue:* scaling:* served shares tasks times:* turns:* waiters
-- returns  the node that leads, '' after a withdrawal; number and text of the decision in force, '' for a text that the
--          node knows; then, if the node leads, (node, load) of up to 500 other nodes, and a row per queue with
--          entries:
--     queue; number of queues that the row stands for; number of entries; age in microseconds of the oldest entry;
--     number of running tasks; 0|1 whether the queue is open
-- A pattern can have any number of queues, so a call reads up to 200 queues of a domain with patterns, and the next
-- call continues with the next queues. If there are more queues, a row with the name of the pattern contains an
-- estimate for the queues that were not read.
-- Invariant: a node that has not called for `ttl` leads nothing, and its load is not returned.
local MOST_NODES, MOST_QUEUES, MOST_READ, CHUNK, TIERS = 500, 200, 1000, 50, 7
local now = redis_now()
local pool, node, ttl, load, known, decision, tiers = unpack(ARGV, 1, TIERS)
local POOL, LOADS = PREFIX .. 'scaling:' .. pool, PREFIX .. 'loads:' .. pool
local until_us = digits_of(now + tonumber(ttl) * 1000)

local lead, number, text = unpack(redis.call('HMGET', POOL, 'lead', 'number', 'decision'))
redis.call('HLEN', LOADS)
local ends, leader = string.match(lead or '', '^(%d+) (.+)$')
if (whole(ends) or 0) <= now then leader = nil end

local function withdraw()
  redis.call('HDEL', LOADS, node)
  if leader == node then redis.call('HDEL', POOL, 'lead') end
  return { '', '0', '', {}, {} }
end

local function loads_of_others()
  local found, loads, expired = redis.call('HGETALL', LOADS), {}, {}
  for i = 1, #found, 2 do
    local valid_until, load_of_node = string.match(found[i + 1], '^(%d+) (.*)$')
    if (whole(valid_until) or 0) <= now then
      if #expired < MOST_NODES then expired[#expired + 1] = found[i] end
    elseif found[i] ~= node and #loads < 2 * MOST_NODES then
      loads[#loads + 1], loads[#loads + 2] = found[i], load_of_node
    end
  end
  return loads, expired
end

-- Return the number of entries in a lane, and for how long its first entry has been ready. The time is 0 for an item
-- that no script wrote.
local function inspect_lane(lane)
  local entries = length(lane)
  local first = entries > 0 and redis.call('LINDEX', lane, 0)
  local ready_us = first and whole(string.match(first, '^%S+ %S+ %l %d+ (%d+) '))
  return entries, ready_us and math.max(0, now - ready_us) or 0
end

local rows, named = {}, {} -- the rows, and the counter of running tasks for each row
local may_be_closed = redis.call('EXISTS', CONDITIONS, PREFIX .. 'paused') > 0
local function add_row(queue)
  local ready, age = inspect_lane(ready_lane(queue))
  local due, due_age = inspect_lane(delayed_lane(queue))
  if ready + due == 0 then return nil end
  local is_open = not (may_be_closed and closed_by(queue, now))
  local row = { queue, 1, ready + due, math.max(age, due_age), 0, is_open and 1 or 0 }
  rows[#rows + 1], named[#named + 1] = row, 'running:' .. queue
  return row
end

-- Add the queues of a domain that it names. Most of their lanes are empty, so one command checks many lanes.
local function add_named(domain)
  local queues, lanes = {}, {}
  for index = domain.first, domain.last do
    local queue = ARGV[index]
    if not is_pattern(queue) then
      queues[#queues + 1] = queue
      lanes[#lanes + 1], lanes[#lanes + 2] = ready_lane(queue), delayed_lane(queue)
    end
    if #queues == CHUNK or index == domain.last and #queues > 0 then
      if redis.call('EXISTS', unpack(lanes)) > 0 then
        for _, each in ipairs(queues) do add_row(each) end
      end
      queues, lanes = {}, {}
    end
  end
end

-- Add the queues that a domain serves through a pattern. `turns:DOMAIN` also has queues that the domain serves by name,
-- and queues of other domains, because a new domain begins with a mark for each queue with entries.
local function add_queues_of_patterns(domain)
  local turns, seen, read = turns_key(domain.name), {}, 0
  local found, closed, ready, pattern = 0, 0, 0, string.match(domain.settings, ' ([^ =]*%*)=%d')
  local total = redis.pcall('ZCARD', turns)
  if type(total) ~= 'number' then return end
  while read < total and read < MOST_READ and found < MOST_QUEUES do
    local members = redis.call('ZRANGE', turns, read, read + MOST_QUEUES - found - 1)
    for _, member in ipairs(members) do
      local queue = string.match(member, '^%d+ %d+ (.*)$') or member
      local name = not seen[queue] and served_as(domain.settings, queue)
      seen[queue] = true
      if name and is_pattern(name) then
        local row = add_row(queue)
        found = found + 1
        if row and row[6] == 0 then closed = closed + 1 end
        if row and row[6] == 1 then ready, pattern = ready + row[3], name end
      end
    end
    read = read + math.max(1, #members)
  end
  if read >= total or found > 0 and closed == found then return end
  -- If all queues that were read are empty or not served here, assume one waiting task, so that the pool has a worker,
  -- which then removes these queues from the order.
  local others = math.max(1, math.ceil((total - read) * found / read))
  rows[#rows + 1] = { pattern, others, math.max(1, math.ceil(ready / math.max(1, found) * others)), 0, 0, 1 }
  named[#named + 1] = 'running:*'
end

local function read_backlog()
  for _, domain in ipairs(read_tiers(TIERS)) do
    add_named(domain)
    if domain.has_patterns then add_queues_of_patterns(domain) end
  end
  if #rows == 0 then return end
  for i, running in ipairs(redis.call('HMGET', PREFIX .. 'counts', unpack(named))) do
    rows[i][5] = math.max(0, whole_or_zero(running))
  end
end

if ttl == '0' then return withdraw() end
leader = leader or node
local loads, expired = {}, {}
if leader == node then
  loads, expired = loads_of_others()
  if tiers then read_backlog() end
  if decision ~= '' then
    number, text = digits_of(math.max(now, (whole(number) or 0) + 1)), decision
    redis.call('HSET', POOL, 'number', number, 'decision', text)
  end
  redis.call('HSET', POOL, 'lead', until_us .. ' ' .. node)
  if #expired > 0 then redis.call('HDEL', LOADS, unpack(expired)) end
end
redis.call('HSET', LOADS, node, until_us .. ' ' .. load)
redis.call('PEXPIRE', LOADS, ttl)
redis.call('PEXPIRE', POOL, ttl) -- The decision stays in force as long as any node calls this script.
number = whole(number) and number or '0'
return { leader, number, number ~= known and text or '', loads, rows }
