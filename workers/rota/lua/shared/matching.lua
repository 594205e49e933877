-- Match queues with the names and patterns of tiers, as rota/protocol/keys.py does. A queue is served under its own
-- name, or else under the longest pattern that it matches. Settings are a text with ` NAME=VALUE` for each name or
-- pattern. The settings of a domain with patterns contain every name and pattern that it serves. Names and patterns
-- that match but are served elsewhere have the value `-`.
local function is_pattern(name) return string.sub(name, -1) == '*' end

-- Return the name or pattern under which a queue is served, and where its value begins; nil if the queue is not served.
local function served_as(settings, queue)
  local _, before = string.find(settings, ' ' .. queue .. '=', 1, true)
  local name, at, longest = queue, before and before + 1, -1
  for prefix, value_at in string.gmatch(before and '' or settings, ' ([^ =]*)%*=()') do
    if #prefix > longest and string.sub(queue, 1, #prefix) == prefix then
      longest, name, at = #prefix, prefix .. '*', value_at
    end
  end
  if at and string.sub(settings, at, at) ~= '-' then return name, at end
end
