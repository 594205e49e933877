-- The tiers of a call, from ARGV[at] on: `domains`, then for each `name settings n`, n names of queues or patterns. The
-- settings are a text, ` NAME=COST CAP INTERVAL BURST` for each that does not have the plain ones; with patterns for each,
-- see shared/matching.lua. A fleet may serve a hundred queues and a call be about one, so nothing is read before it is
-- asked for.
-- with: matching
local PLAIN_COST = 720720 -- VIRTUAL_UNIT of rota/protocol/tiers.py: an entry at weight 1

local function read_tiers(at)
  local domains, number = {}, tonumber(ARGV[at])
  at = at + 1
  for d = 1, number do
    local settings, size = ARGV[at + 1], tonumber(ARGV[at + 2])
    local has_patterns = settings ~= '' and string.find(settings, '*=', 1, true) ~= nil
    domains[d] = { name = ARGV[at], settings = settings, has_patterns = has_patterns, first = at + 3, last = at + 2 + size }
    at = at + 3 + size
  end
  return domains
end

-- How this domain serves a queue of its own. `name` is as what, `by_turn` that its queues stand in order: shared/turns.lua.
local function share_in(domain, queue)
  local share = { queue = queue, domain = domain.name, cost = PLAIN_COST, cap = 0, interval = 0, burst = 1 }
  local at
  if domain.has_patterns then
    share.by_turn = true
    share.name, at = served_as(domain.settings, queue)
  else
    share.name, at = queue, value_of(domain.settings, queue)
  end
  if at then
    local cost, cap, interval, burst = string.match(domain.settings, '^(%d+) (%d+) (%d+) (%d+)', at)
    share.cost, share.cap = tonumber(cost), tonumber(cap)
    share.interval, share.burst = tonumber(interval), tonumber(burst)
  end
  return share
end
local function share_at(domain, place) return share_in(domain, ARGV[place]) end

local function serves(domain, queue)
  if domain.has_patterns then return served_as(domain.settings, queue) ~= nil end
  for place = domain.first, domain.last do
    if ARGV[place] == queue then return true end
  end
  return false
end

-- The share of a queue, or nil when these tiers do not serve it.
local function share_of(domains, queue)
  for _, domain in ipairs(domains) do
    if serves(domain, queue) then return share_in(domain, queue) end
  end
end

-- Calls `visit(name, domain)` for each queue and pattern served.
local function each_queue(domains, visit)
  for _, domain in ipairs(domains) do
    for place = domain.first, domain.last do visit(ARGV[place], domain) end
  end
end
