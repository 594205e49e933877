-- Which queue is meant by a name of the tiers, as in rota/protocol/patterns.py: its own name, else the longest pattern that
-- it fits. Settings are a text, ` NAME=VALUE` for each; of a domain with patterns they name all that it serves, and those
-- it does not serve though they fit, with the value `-`.
local function is_pattern(name) return string.sub(name, -1) == '*' end

-- What a text of ` NAME=VALUE` says of a name, from where its value begins; nil when it says nothing.
local function value_of(text, name)
  if text == '' then return nil end
  local _, before = string.find(text, ' ' .. name .. '=', 1, true)
  return before and before + 1
end

-- As which name or pattern of these settings a queue is served, and where the value of that begins; nil when it is not.
local function served_as(settings, queue)
  local name, at = queue, value_of(settings, queue)
  if not at then
    local longest = -1
    for prefix, value_at in string.gmatch(settings, ' ([^ =]*)%*=()') do
      if #prefix > longest and string.sub(queue, 1, #prefix) == prefix then
        longest, name, at = #prefix, prefix .. '*', value_at
      end
    end
  end
  if at and string.sub(settings, at, at) ~= '-' then return name, at end
end
