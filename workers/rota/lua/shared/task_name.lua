-- Return the name of the task in a body, '' if it cannot be read. For people only.
local function name_in(body)
  local _, _, name = item_names(body)
  return name or name_or_nil(string.match(string.sub(body, 1, 200), '^%s*%[%s*"([^"]*)"')) or ''
end
