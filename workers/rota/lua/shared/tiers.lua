-- The tiers of a call, from ARGV[at]: the number of domains, then for each domain `name settings n` and n names of
-- queues or patterns. The settings are a list as in shared/share_text.lua. They contain each name that does not have
-- the default settings, or every name if the domain has patterns (see shared/matching.lua). A fleet may serve a hundred
-- queues while a call concerns only one, so the list is read only where needed. If no master has published a domain
-- with patterns, nothing is claimed from it, because no queue is marked in it.
-- with: patterns matching share_text
local PLAIN_COST = 720720 -- VIRTUAL_UNIT of rota/protocol/tiers.py: the cost of an entry at weight 1

local tiers_at -- index in ARGV at which the tiers begin; `explain` replaces the tiers of its turn there
local function read_tiers(at)
  local domains, number = {}, tonumber(ARGV[at])
  tiers_at, at = at, at + 1
  for d = 1, number do
    local settings, size = ARGV[at + 1], tonumber(ARGV[at + 2])
    domains[d] = { name = ARGV[at], settings = settings, first = at + 3, last = at + 2 + size }
    if any_patterns then domains[d].has_patterns = string.find(settings, '*=', 1, true) ~= nil end
    at = at + 3 + size
  end
  return domains
end

-- Return where the value of a name begins in a text of ` NAME=VALUE` parts, or nil if the name is not in the text.
local function value_of(text, name)
  if text == '' then return nil end
  local _, before = string.find(text, ' ' .. name .. '=', 1, true)
  return before and before + 1
end

-- Return how this domain serves a queue. `name` is the matching name or pattern, nil if no pattern matches. In a domain
-- with patterns the queues have turns, see shared/turns.lua.
local function share_in(domain, queue)
  local share = {
    queue = queue, domain = domain.name, cost = PLAIN_COST, cap = 0, interval = 0, burst = 1,
    -- Fields that are set later are created here, because enlarging the table would take time in each call.
    name = false, is_bounded = false, is_only_node = false,
    head = false, rest = false, at = false, -- these are used during a claim
  }
  local at
  if domain.has_patterns then
    share.name, at = served_as(domain.settings, queue)
    share.in_turn = true
  else
    share.name, at = queue, value_of(domain.settings, queue)
    share.is_only_node = domain.first == domain.last
  end
  if at then read_setting(share, domain.settings, at) end
  return share
end

-- Return the share of a queue, or nil if these tiers do not serve it.
local function share_of(domains, queue)
  for _, domain in ipairs(domains) do
    local share = domain.has_patterns and share_in(domain, queue)
    if share and share.name then return share end
    for index = domain.first, domain.last do
      if ARGV[index] == queue then return share_in(domain, queue) end
    end
  end
end

-- Call `visit(name)` for each queue and pattern of the tiers.
local function each_queue(domains, visit)
  for _, domain in ipairs(domains) do
    for index = domain.first, domain.last do visit(ARGV[index]) end
  end
end
