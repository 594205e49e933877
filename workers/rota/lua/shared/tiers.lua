-- The tiers of a call, from ARGV[at] on: `domains`, then for each `name settings n`, n queues. The settings are a text,
-- ` QUEUE=COST CAP INTERVAL BURST` for each queue that does not have the plain ones. A fleet may serve a hundred queues
-- and a call be about one, so nothing is read before it is asked for.
local PLAIN_COST = 720720 -- VIRTUAL_UNIT of rota/protocol/tiers.py: an entry at weight 1

local function read_tiers(at)
  local domains, number = {}, tonumber(ARGV[at])
  at = at + 1
  for d = 1, number do
    local size = tonumber(ARGV[at + 2])
    domains[d] = { name = ARGV[at], settings = ARGV[at + 1], first = at + 3, last = at + 2 + size }
    at = at + 3 + size
  end
  return domains
end

local function share_at(domain, place)
  local share = { queue = ARGV[place], domain = domain.name, cost = PLAIN_COST, cap = 0, interval = 0, burst = 1 }
  local at = value_of(domain.settings, share.queue)
  if at then
    local cost, cap, interval, burst = string.match(domain.settings, '^(%d+) (%d+) (%d+) (%d+)', at)
    share.cost, share.cap = tonumber(cost), tonumber(cap)
    share.interval, share.burst = tonumber(interval), tonumber(burst)
  end
  return share
end

-- The share of a queue, or nil when these tiers do not serve it.
local function share_of(domains, queue)
  for _, domain in ipairs(domains) do
    for place = domain.first, domain.last do
      if ARGV[place] == queue then return share_at(domain, place) end
    end
  end
end

-- Calls `visit(queue)` for each queue served.
local function each_queue(domains, visit)
  for _, domain in ipairs(domains) do
    for place = domain.first, domain.last do visit(ARGV[place]) end
  end
end
