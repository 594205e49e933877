-- The settings of a queue that a master published last: `COST CAP INTERVAL BURST`, then `:CONDITION` if it has one. A
-- queue of a pattern has the settings of the pattern. A queue without valid settings has the defaults: ''.
-- with: numbers patterns marks
-- keys     shares
local LONGEST_SHARE = 250
local function share_by_name(name, now)
  local text = redis.pcall('HGET', PREFIX .. 'shares', name)
  if type(text) ~= 'string' or #text > LONGEST_SHARE then return '' end
  local ends, numbers, condition = string.match(text, '^(%d+) ([1-9]%d* %d+ %d+ %d+)(%S*)$')
  local is_ours = (whole(ends) or 0) > now and (condition == '' or string.find(condition, '^:[%w_.:-]+$'))
  return is_ours and numbers .. condition or ''
end

local function published_share(queue, now)
  local share = share_by_name(queue, now)
  for _, serving in ipairs(share == '' and any_patterns and servings_of(queue) or {}) do
    if share == '' then share = share_by_name(serving.name, now) end
  end
  return share
end

local function condition_of(queue, now) return string.match(published_share(queue, now), ':(.+)$') end
