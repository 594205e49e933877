-- The name of a task by its body, '' when none can be read: for people.
local function name_in(body)
  local _, _, name = bare_names(body)
  return name or name_or_nil(string.match(string.sub(body, 1, 200), '^%s*%[%s*"([^"]*)"')) or ''
end
