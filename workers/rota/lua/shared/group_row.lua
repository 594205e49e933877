-- Return the state of a group, as in GroupState of rota/protocol/groups.py; nothing if the record is not valid.
-- keys     group-members:* group:*
local GROUP_FIELDS = { 'total', 'done', 'dead', 'cancelled', 'expired', 'purged', 'cursor', 'opened_us' }
local GROUP_PHASES = { open = true, closed = true, cancelled = true }
local function group_row(group)
  local key = PREFIX .. 'group:' .. group
  local known = redis.pcall('HMGET', key, 'phase', 'ended_us', 'followed_by', 'then', 'on_dead', unpack(GROUP_FIELDS))
  if known.err or not GROUP_PHASES[known[1]] then return {} end
  local row = { group, known[2] and 'ended' or known[1], known[1] == 'cancelled' and 1 or 0 }
  for i = 1, #GROUP_FIELDS do row[#row + 1] = whole(known[5 + i]) or 0 end
  local left = redis.pcall('SCARD', PREFIX .. 'group-members:' .. group)
  table.insert(row, 5, type(left) == 'number' and left or 0) -- after the total
  row[#row + 1] = whole(known[2]) or ''
  row[#row + 1] = known[3] or ''
  -- The id of the first task.
  for i = 4, 5 do row[#row + 1] = known[1] ~= 'cancelled' and string.match(known[i] or '', '^%S+') or '' end
  return row
end
