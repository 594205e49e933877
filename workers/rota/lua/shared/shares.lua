-- The settings that a master last published for a queue, in the form of shared/share_text.lua. A queue of a pattern has
-- the settings of the pattern. A queue without valid settings has the defaults, ''.
-- with: numbers patterns marks share_text
-- keys     shares
local LONGEST_SHARE = 250
local function share_by_name(name, now)
  local text = redis.pcall('HGET', PREFIX .. 'shares', name)
  if type(text) ~= 'string' or #text > LONGEST_SHARE then return '' end
  local ends, at = string.match(text, '^(%d+) ()')
  local is_ours = (whole(ends) or 0) > now and read_share({}, text, at) == #text + 1
  return is_ours and string.sub(text, at) or ''
end

local function published_share(queue, now)
  local share = share_by_name(queue, now)
  for _, serving in ipairs(share == '' and any_patterns and servings_of(queue) or {}) do
    if share == '' then share = share_by_name(serving.name, now) end
  end
  return share
end
