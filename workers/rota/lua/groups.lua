#!lua flags=no-writes
-- Groups that have not ended, the longest open first.
-- with: prefix numbers group_row
-- KEYS[1]  tasks
-- ARGV
--   first  how many to pass over
--   most   how many to return, up to 500
-- keys     group-members:* group:* groups tasks totals
-- returns  how many there are, of each a row, as group.lua returns it, and how many ever ended with `then`, `on_dead`,
--          nothing, and cancelled
local MOST = 500
local first, most = tonumber(ARGV[1]), math.min(tonumber(ARGV[2]), MOST)
local open = redis.pcall('ZRANGE', PREFIX .. 'groups', first, first + most - 1)
if open.err then return { 0, {}, { 0, 0, 0, 0 } } end -- of another type it stops nothing
local rows, ends = {}, {}
for i, group in ipairs(open) do rows[i] = group_row(group) end
for i, how in ipairs({ 'then', 'on_dead', 'nothing', 'cancelled' }) do
  ends[i] = whole_or_zero(redis.call('HGET', PREFIX .. 'totals', 'groups-ended:' .. how))
end
return { redis.call('ZCARD', PREFIX .. 'groups'), rows, ends }
