-- The tiers of a call, from ARGV[at] on: `domains`, then for each `name settings n`, n names of queues or patterns. The
-- settings are a text, ` NAME=COST CAP INTERVAL BURST` for each that does not have the plain ones, with `:CONDITION`
-- behind it where it has one; with patterns for each, see shared/matching.lua. A fleet may serve a hundred queues and a
-- call be about one, so nothing is read before it is asked for. A domain with patterns that no master announced serves
-- nobody, as nothing is marked for it.
-- with: patterns matching
local PLAIN_COST = 720720 -- VIRTUAL_UNIT of rota/protocol/tiers.py: an entry at weight 1

local function read_tiers(at)
  local domains, number = {}, tonumber(ARGV[at])
  at = at + 1
  for d = 1, number do
    local settings, size = ARGV[at + 1], tonumber(ARGV[at + 2])
    domains[d] = { name = ARGV[at], settings = settings, first = at + 3, last = at + 2 + size }
    if any_patterns then domains[d].has_patterns = string.find(settings, '*=', 1, true) ~= nil end
    at = at + 3 + size
  end
  return domains
end

-- What a text of ` NAME=VALUE` says of a name, from where its value begins; nil when it says nothing.
local function value_of(text, name)
  if text == '' then return nil end
  local _, before = string.find(text, ' ' .. name .. '=', 1, true)
  return before and before + 1
end

-- How this domain serves a queue. `name` is as what, nil of a queue that no pattern of it is for; with patterns its
-- queues stand in turn, see shared/turns.lua.
local function share_in(domain, queue)
  local share = {
    queue = queue, domain = domain.name, cost = PLAIN_COST, cap = 0, interval = 0, burst = 1,
    head = false, rest = false, -- of a claim
  }
  local at
  if domain.has_patterns then
    share.name, at = served_as(domain.settings, queue)
    share.in_turn = true
  else
    share.name, at = queue, value_of(domain.settings, queue)
    share.is_alone = domain.first == domain.last
  end
  if at then
    local cost, cap, interval, burst, condition = string.match(domain.settings, '^(%d+) (%d+) (%d+) (%d+):?(%S*)', at)
    share.cost, share.cap = tonumber(cost), tonumber(cap)
    share.interval, share.burst = tonumber(interval), tonumber(burst)
    if condition ~= '' then share.condition = condition end
    share.is_bounded = share.cap > 0 or share.interval > 0 or condition ~= ''
  end
  return share
end

-- The share of a queue, or nil when these tiers do not serve it.
local function share_of(domains, queue)
  for _, domain in ipairs(domains) do
    local share = domain.has_patterns and share_in(domain, queue)
    if share and share.name then return share end
    for place = domain.first, domain.last do
      if ARGV[place] == queue then return share_in(domain, queue) end
    end
  end
end

-- Calls `visit(name)` for each queue and pattern served.
local function each_queue(domains, visit)
  for _, domain in ipairs(domains) do
    for place = domain.first, domain.last do visit(ARGV[place]) end
  end
end
