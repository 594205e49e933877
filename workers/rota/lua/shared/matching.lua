-- Which queue is meant by a name of the tiers, as in rota/protocol/keys.py: its own name, else the longest pattern
-- that it fits. Settings are a text, ` NAME=VALUE` for each; of a domain with patterns they name all that it serves,
-- and those it does not serve though they fit, with the value `-`.
local function is_pattern(name) return string.sub(name, -1) == '*' end

-- As which name or pattern of these settings a queue is served, and where the value of that begins; nil when it is not.
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
