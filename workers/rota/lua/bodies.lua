#!lua flags=no-writes
-- A portion of the tasks that live: those that are neither delayed nor dead, so that they stand in a list, or nowhere.
-- with: prefix lists places
-- KEYS[1]  tasks
-- ARGV
--   cursor  '0' at first
-- keys     dead delayed inflight:* owners tasks
-- returns  the next cursor, '0' after the last portion; ids
local PORTION = 250
local cursor = ARGV[1]
local step, found = 1, redis.pcall('HSCAN', KEYS[1], cursor, 'COUNT', PORTION, 'NOVALUES')
if found.err then -- older than Redis 7.4 and Valkey 8: the bodies come along
  step, found = 2, redis.call('HSCAN', KEYS[1], cursor, 'COUNT', PORTION)
end
local ids = {}
for i = 1, #found[2], step do ids[#ids + 1] = found[2][i] end
return { found[1], in_lane_or_nowhere(ids, {}) }
