#!lua flags=allow-oom
-- Close a group. It ends when its last live member ends, or at once if it has none. Until then its members can still
-- add members.
-- with: prefix clock entry doorbell counters in_use about_groups incarnations legacy_item task_events waiters following
-- KEYS[1]  tasks
-- ARGV
--   group  id of the group
-- keys     counts dead delayed doorbell doorbell:* ends ends-sealed ends-untold ends:* epitaphs events events-on former
--          group-members:* group:* groups idle keys members meta patterns paused progress queue:* queues ready
--          replies:* result:* served tasks tickets times:* totals turns:* unique:* waiters
-- returns  1, or 0 if the group has ended or is unknown
-- Invariant: a group without live members has ended when the script returns.
local group, now = ARGV[1], redis_now()
guard_task_keys()
redis.call('HLEN', MEMBERS)
redis.call('SCARD', following.members_key(group))
local known = redis.call('HMGET', following.group_key(group), 'phase', 'ended_us')
if not known[1] or known[2] then return 0 end
if known[1] == 'open' then redis.call('HSET', following.group_key(group), 'phase', 'closed') end
following.end_group_if_over(group, now)
return 1
