#!lua flags=no-writes
-- Groups that have not ended, the longest open first.
-- with: prefix numbers group_row
-- KEYS[1]  tasks
-- ARGV     how many to pass over, how many to return (at most 500)
-- returns  how many there are, and of each a row, as group.lua returns it
local MOST = 500
local first, most = tonumber(ARGV[1]), math.min(tonumber(ARGV[2]), MOST)
local rows = {}
for _, group in ipairs(redis.call('ZRANGE', PREFIX .. 'groups', first, first + most - 1)) do
  rows[#rows + 1] = group_row(group)
end
return { redis.call('ZCARD', PREFIX .. 'groups'), rows }
