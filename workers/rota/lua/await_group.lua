#!lua flags=allow-oom
-- Check whether at most `most` members of a group are left, or whether the group has ended. If neither is the case,
-- register the client, so that it is notified when one of the two becomes true.
-- with: prefix
-- KEYS[1]  tasks
-- ARGV
--   client  name of the client that waits
--   group   id of the group
--   most    number of members that may be left, or `-` to wait for the end of the group
-- keys     group-members:* group:* tasks
-- returns  1 if at most `most` members are left or the group has ended or is unknown, otherwise 0; and the number of
--          members left (-1 if the group has ended or is unknown)
-- Invariant: a client that has to wait is registered in the same call, so that it misses no change. If the list of
-- waiting clients is full, the client is not registered, and has to check again later.
local MOST_NOTED = 1000
local client, group, most = ARGV[1], ARGV[2], ARGV[3]
local key = PREFIX .. 'group:' .. group
local known = redis.call('HMGET', key, 'phase', 'ended_us', 'awaited')
if not known[1] or known[2] then return { 1, -1 } end
local left = redis.call('SCARD', PREFIX .. 'group-members:' .. group)
if left <= (tonumber(most) or -1) then return { 1, left } end
local waiter, noted = ' ' .. client .. ':' .. most, known[3] or ''
if not string.find(noted .. ' ', waiter .. ' ', 1, true) and #noted <= MOST_NOTED then
  redis.call('HSET', key, 'awaited', noted .. waiter)
end
return { 0, left }
