#!lua flags=allow-oom
-- Cancel a group: it takes no members, nothing follows it, and its chains go no further. What lives of it is handed out
-- in portions, for the caller to cancel.
-- with: prefix clock entry doorbell books in_use about_groups former bare news waiters following
-- KEYS[1]  tasks
-- ARGV
--   group   its id
--   cursor  '0' at first
-- keys     counts dead delayed doorbell doorbell:* ends ends-sealed ends-untold ends:* epitaphs events events-on former
--          group-members:* group:* groups idle keys members meta patterns paused progress queue:* queues ready
--          replies:* result:* served tasks tickets times:* totals turns:* unique:* waiters
-- returns  whether it is known and has not ended 0|1, the next cursor, '0' behind the last portion, ids
-- Invariant: nothing that was to follow the group is enqueued any more.
local PORTION = 500
local group, cursor, now = ARGV[1], ARGV[2], redis_now()
guard_places()
redis.call('HLEN', MEMBERS)
local known = redis.call('HMGET', following.group_key(group), 'phase', 'ended_us')
if not known[1] or known[2] then return { 0, '0', {} } end
local portion = redis.call('SSCAN', following.members_key(group), cursor, 'COUNT', PORTION)
redis.call('HSET', following.group_key(group), 'phase', 'cancelled')
for i, member in ipairs(#portion[2] > 0 and redis.call('HMGET', MEMBERS, unpack(portion[2])) or {}) do
  if not member then -- somebody took it away: nobody would tell of its end
    redis.call('HSET', MEMBERS, portion[2][i], group)
    follow('purged', now, { portion[2][i] })
  end
end
following.end_group_if_over(group, now)
return { 1, portion[1], portion[2] }
