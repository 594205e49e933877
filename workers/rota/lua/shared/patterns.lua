-- Queues of patterns, as masters announced them: `patterns` has domain -> `UNTIL SETTINGS`, of each that has patterns. Whoever
-- puts something into such a queue marks it for those domains, and rings for the name as which it is served there.
-- with: matching
local MARK = -1 -- the score of a mark: see shared/turns.lua
local function turns_key(domain) return PREFIX .. 'turns:' .. domain end
local function times_key(domain) return PREFIX .. 'times:' .. domain end

local announced -- read once a call, by those that ask; of another type it stops patterns, and nothing else
local function announced_domains()
  announced = announced or redis.pcall('HGETALL', PREFIX .. 'patterns')
  return announced
end

-- Where a queue is served together with queues of a pattern: of each domain its name, and the name or pattern as which.
local function servings_of(queue)
  local domains, servings = announced_domains(), {}
  for i = 1, #domains, 2 do
    local name = served_as(domains[i + 1], queue)
    if name then servings[#servings + 1] = { domain = domains[i], name = name } end
  end
  return servings
end

-- The next claim of each of these domains is to look at this queue; and it is not idle (see shared/idle.lua). A mark never
-- raises: no transition stops half way.
local IDLE = PREFIX .. 'idle'
local function mark(queue, servings)
  if #servings > 0 then redis.pcall('ZREM', IDLE, queue) end
  for _, serving in ipairs(servings) do redis.pcall('ZADD', turns_key(serving.domain), MARK, queue) end
end

-- The names for whose bells the workers of a queue wait: those of its servings, and its own where somebody serves it by that.
local function names_heard(queue, servings)
  if #servings == 0 then return { queue } end
  local names, seen = {}, {}
  for _, serving in ipairs(servings) do
    if not seen[serving.name] then names[#names + 1] = serving.name end
    seen[serving.name] = true
  end
  if not seen[queue] and redis.pcall('HEXISTS', PREFIX .. 'served', queue) == 1 then names[#names + 1] = queue end
  return names
end
