-- The tiers of a call, from ARGV[at] on: `domains`, then each `name queues`, then each `queue cost cap interval burst`.
-- Answers the list of domains and a map from queue to its share.
local function read_tiers(at)
  local domains, shares = {}, {}
  local number = tonumber(ARGV[at])
  at = at + 1
  for d = 1, number do
    local domain = { name = ARGV[at], queues = {} }
    local size = tonumber(ARGV[at + 1])
    at = at + 2
    for q = 1, size do
      local share = {
        queue = ARGV[at], cost = tonumber(ARGV[at + 1]), cap = tonumber(ARGV[at + 2]),
        interval = tonumber(ARGV[at + 3]), burst = tonumber(ARGV[at + 4]), domain = domain.name,
      }
      domain.queues[q] = share.queue
      shares[share.queue] = share
      at = at + 5
    end
    domains[d] = domain
  end
  return domains, shares
end
