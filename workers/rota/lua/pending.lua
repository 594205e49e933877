#!lua flags=no-writes
-- Find the chain or group after which a task that is not enqueued yet will be enqueued. Chains are searched first.
-- with: prefix
-- KEYS[1]  tasks
-- ARGV
--   id      id of the task
--   cursor  '' in the first call, then the cursor of the last reply
-- keys     group:* groups members tasks
-- returns  `task ID` or `group ID`, '' if this batch has neither; the next cursor, '' after the last batch
local CHUNK = 250
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
  local page = redis.pcall(verb, key, at, 'COUNT', CHUNK)
  if page.err then return '', '0' end -- a key of the wrong type counts as empty
  for i = 1, #page[2], 2 do
    local found = find(page[2][i], page[2][i + 1])
    if found then return found, '0' end
  end
  return '', page[1]
end

local searched, at = string.match(cursor, '^(%l)(%d+)$')
local found, following
if searched == 'm' then
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
