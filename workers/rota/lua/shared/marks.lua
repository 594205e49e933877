-- Marks for queues of patterns. Masters publish each domain that has patterns: `patterns` maps the domain to `UNTIL
-- SETTINGS`. A script that pushes to a queue marks it in each of these domains that serves it through a pattern or by
-- name, and rings the bells of these names and patterns. In a fleet without patterns, this file makes only one check,
-- and defines no functions.
-- with: matching
-- keys     idle served times:* turns:*
local MARK = -1 -- the score of a mark: see shared/turns.lua
local turns_key, times_key, servings_of, mark, bell_names
if any_patterns then
  turns_key = function(domain) return PREFIX .. 'turns:' .. domain end
  times_key = function(domain) return PREFIX .. 'times:' .. domain end

  -- Return the domains with patterns that serve a queue, each with the name or pattern that the queue matches.
  -- The announced queues and patterns, read once per call. If their key has the wrong type, only patterns stop working.
  local announced
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

  -- Mark a queue, so that the next claim in each of its domains checks it, and record that it is not idle (see
  -- shared/idle.lua). This never raises an error, because a script must not stop after its first write.
  mark = function(queue)
    local servings = servings_of(queue)
    if #servings > 0 then redis.pcall('ZREM', PREFIX .. 'idle', queue) end
    for _, serving in ipairs(servings) do redis.pcall('ZADD', turns_key(serving.domain), MARK, queue) end
  end

  -- Return the names of the bells at which the workers of a queue listen: the matching names and patterns, and the
  -- queue's own name if it is served under that name, or if nothing matches.
  bell_names = function(queue)
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
