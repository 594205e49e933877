#!lua flags=allow-oom
-- Whether few enough members of a group are left, or it has ended; if not, note that this client waits for that.
-- with: prefix
-- KEYS[1]  tasks
-- ARGV
--   client  who waits
--   group   its id
--   most    how many members may be left, or `-` to wait for its end
-- keys     group-members:* group:* tasks
-- returns  whether that has come 0|1, how many are left, -1 when it has ended or is not known
-- Invariant: what has not come yet is noted in the call that looked. Who finds no room there asks again by itself.
local MOST_NOTED = 1000
local client, group, most = ARGV[1], ARGV[2], ARGV[3]
local key = PREFIX .. 'group:' .. group
local known = redis.call('HMGET', key, 'phase', 'ended_us', 'awaited')
if not known[1] or known[2] then return { 1, -1 } end
local left = redis.call('SCARD', PREFIX .. 'group-members:' .. group)
if left <= (tonumber(most) or -1) then return { 1, left } end
local word, noted = ' ' .. client .. ':' .. most, known[3] or ''
if not string.find(noted .. ' ', word .. ' ', 1, true) and #noted <= MOST_NOTED then
  redis.call('HSET', key, 'awaited', noted .. word)
end
return { 0, left }
