-- The tiers of a call, from ARGV[at] on: `domains`, then for each `name n`, n queues, n x (cost cap interval burst).
-- A fleet may serve a hundred queues and a call be about one, so nothing is read before it is asked for.
local function read_tiers(at)
  local domains, number = {}, tonumber(ARGV[at])
  at = at + 1
  for d = 1, number do
    local size = tonumber(ARGV[at + 1])
    domains[d] = { name = ARGV[at], first = at + 2, last = at + 1 + size }
    at = at + 2 + size * 5
  end
  return domains
end

local function share_at(domain, position)
  local at = domain.last + 1 + (position - domain.first) * 4
  return {
    queue = ARGV[position], domain = domain.name, cost = tonumber(ARGV[at]), cap = tonumber(ARGV[at + 1]),
    interval = tonumber(ARGV[at + 2]), burst = tonumber(ARGV[at + 3]),
  }
end

-- The share of a queue, or nil when these tiers do not serve it.
local function share_of(domains, queue)
  for _, domain in ipairs(domains) do
    for position = domain.first, domain.last do
      if ARGV[position] == queue then return share_at(domain, position) end
    end
  end
end

-- Calls `visit(queue)` for each queue served.
local function each_queue(domains, visit)
  for _, domain in ipairs(domains) do
    for position = domain.first, domain.last do visit(ARGV[position]) end
  end
end
