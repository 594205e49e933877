-- What is to be done for queues of patterns, as masters announced them: `patterns` has domain -> `UNTIL SETTINGS`, of
-- each domain that has patterns. Whoever puts something into such a queue marks it for those domains, and rings for the
-- names as which it is served there. Where none is announced there is nothing of this, so that it costs no call more
-- than the look for it.
-- with: matching
-- keys     idle served times:* turns:*
local MARK = -1 -- the score of a mark: see shared/turns.lua
local turns_key, times_key, servings_of, mark, names_heard
if any_patterns then
  turns_key = function(domain) return PREFIX .. 'turns:' .. domain end
  times_key = function(domain) return PREFIX .. 'times:' .. domain end

  -- Where a queue is served together with queues of a pattern: of each domain its name, and the name or pattern as
  -- which.
  local announced -- read once a call; of another type it stops patterns, and nothing else
  local known = {}
  servings_of = function(queue)
    if known[queue] then return known[queue] end
    announced = announced or redis.pcall('HGETALL', PATTERNS)
    local servings = {}
    for i = 1, #announced, 2 do
      local name = served_as(announced[i + 1], queue)
      if name then servings[#servings + 1] = { domain = announced[i], name = name } end
    end
    known[queue] = servings
    return servings
  end

  -- The next claim of each of those domains is to look at this queue; and it is not idle (see shared/idle.lua). A mark
  -- never raises: no transition stops half way.
  mark = function(queue)
    local servings = servings_of(queue)
    if #servings > 0 then redis.pcall('ZREM', PREFIX .. 'idle', queue) end
    for _, serving in ipairs(servings) do redis.pcall('ZADD', turns_key(serving.domain), MARK, queue) end
  end

  -- The names at whose bells the workers of a queue listen: those of its servings, and its own where it is served by
  -- that.
  names_heard = function(queue)
    local names, seen = {}, {}
    for _, serving in ipairs(servings_of(queue)) do
      if not seen[serving.name] then names[#names + 1] = serving.name end
      seen[serving.name] = true
    end
    local has_own_bell = #names == 0 or not seen[queue] and redis.pcall('HEXISTS', PREFIX .. 'served', queue) == 1
    if has_own_bell then names[#names + 1] = queue end
    return names
  end
end
