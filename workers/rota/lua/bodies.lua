#!lua flags=no-writes
-- Return a batch of ids of tasks that have a body and are neither delayed nor dead. The entry of each of these tasks
-- should be in a lane or an in-flight list. The caller checks this.
-- with: prefix lists locations
-- KEYS[1]  tasks
-- ARGV
--   cursor  '0' in the first call, then the cursor of the last reply
-- keys     dead delayed inflight:* owners tasks
-- returns  the next cursor ('0' after the last batch), and the ids
local CHUNK = 250
local cursor = ARGV[1]
local step, found = 1, redis.pcall('HSCAN', KEYS[1], cursor, 'COUNT', CHUNK, 'NOVALUES')
if found.err then -- Redis before 7.4 and Valkey before 8 do not know NOVALUES, so the reply has the bodies too
  step, found = 2, redis.call('HSCAN', KEYS[1], cursor, 'COUNT', CHUNK)
end
local ids = {}
for i = 1, #found[2], step do ids[#ids + 1] = found[2][i] end
return { found[1], in_lane_or_nowhere(ids, {}) }
