#!lua flags=no-writes
-- What a task follows that is not enqueued yet: looked for in what follows the members of chains, then groups.
-- with: prefix
-- KEYS[1]  tasks
-- ARGV
--   id      of the task
--   cursor  '' at first
-- keys     group:* groups members tasks
-- returns  `task ID` or `group ID`, '' when this portion has none; the next cursor, '' behind the last portion
local PORTION = 250
local ITEM = '^(%S+) %S+ %S+ (%d+)\n()' -- as in shared/following.lua
local id, cursor = ARGV[1], ARGV[2] == '' and 'm0' or ARGV[2]

local function has_id(text)
  local at = 1
  if not string.find(text, id .. ' ', 1, true) then return false end
  while at <= #text do
    local item, size, body_at = string.match(text, ITEM, at)
    if not item or item == id then return item == id end
    at = body_at + size
  end
  return false
end

local function follows_group(group)
  local known = redis.pcall('HMGET', PREFIX .. 'group:' .. group, 'phase', 'ended_us', 'then', 'on_dead')
  if known.err or not known[1] or known[1] == 'cancelled' or known[2] then return false end
  return has_id(known[3] or '') or has_id(known[4] or '')
end

local function scan(verb, key, at, find)
  local page = redis.pcall(verb, key, at, 'COUNT', PORTION)
  if page.err then return '', '0' end -- of another type it stops nothing
  for i = 1, #page[2], 2 do
    local found = find(page[2][i], page[2][i + 1])
    if found then return found, '0' end
  end
  return '', page[1]
end

local place, at = string.match(cursor, '^(%l)(%d+)$')
local found, following
if place == 'm' then
  found, following = scan('HSCAN', PREFIX .. 'members', at, function(task, text)
    return has_id(string.match(text, '\n(.*)$') or '') and 'task ' .. task
  end)
  following = following == '0' and 'g0' or 'm' .. following
else
  found, following = scan('ZSCAN', PREFIX .. 'groups', at or '0', function(group)
    return follows_group(group) and 'group ' .. group
  end)
  following = following == '0' and '' or 'g' .. following
end
return { found, found == '' and following or '' }
