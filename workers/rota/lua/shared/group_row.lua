-- Return the state of a group, as `parse_group` in rota/protocol/groups.py reads it, with the number of members that
-- ended with each outcome in `ends`. Return nothing if the record is not valid.
-- keys     group-members:* group:*
local GROUP_FIELDS = { 'phase', 'ended_us', 'followed_by', 'then', 'on_dead', 'total', 'cursor', 'opened_us' }
local GROUP_PHASES = { open = true, closed = true, cancelled = true }
local function group_row(group, ends)
  local key, fields = PREFIX .. 'group:' .. group, { unpack(GROUP_FIELDS) }
  for i, how in ipairs(ends) do fields[#GROUP_FIELDS + i] = how end
  local known = redis.pcall('HMGET', key, unpack(fields))
  if known.err or not GROUP_PHASES[known[1]] then return {} end
  local row = { group, known[2] and 'ended' or known[1], known[1] == 'cancelled' and 1 or 0, whole(known[6]) or 0 }
  local left = redis.pcall('SCARD', PREFIX .. 'group-members:' .. group)
  row[#row + 1] = type(left) == 'number' and left or 0
  for i = 7, 8 do row[#row + 1] = whole(known[i]) or 0 end
  row[#row + 1] = whole(known[2]) or ''
  row[#row + 1] = known[3] or ''
  -- The texts `then` and `on_dead` begin with the id of the task that will follow.
  for i = 4, 5 do row[#row + 1] = known[1] ~= 'cancelled' and string.match(known[i] or '', '^%S+') or '' end
  for i = #GROUP_FIELDS + 1, #fields do row[#row + 1] = whole(known[i]) or 0 end
  return row
end
