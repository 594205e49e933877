#!lua flags=no-writes
-- Return a page of the groups that have not ended, oldest first.
-- with: prefix numbers group_row
-- KEYS[1]  tasks
-- ARGV
--   first  number of groups to skip
--   most   number of groups to return, up to 500
--   ends   outcomes with which a task ends, for example `done`
-- keys     group-members:* group:* groups tasks totals
-- returns  the number of all open groups; for each group on the page a row as in group.lua; and the numbers of all
--          groups that have ever ended: those followed by `then`, by `on_dead`, by nothing, and those cancelled
local MOST = 500
local first, most, ends = tonumber(ARGV[1]), math.min(tonumber(ARGV[2]), MOST), { unpack(ARGV, 3) }
local open = redis.pcall('ZRANGE', PREFIX .. 'groups', first, first + most - 1)
if open.err then return { 0, {}, { 0, 0, 0, 0 } } end -- a key of the wrong type counts as empty
local rows, followed = {}, {}
for i, group in ipairs(open) do rows[i] = group_row(group, ends) end
for i, how in ipairs({ 'then', 'on_dead', 'nothing', 'cancelled' }) do
  followed[i] = whole_or_zero(redis.call('HGET', PREFIX .. 'totals', 'groups-ended:' .. how))
end
return { redis.call('ZCARD', PREFIX .. 'groups'), rows, followed }
