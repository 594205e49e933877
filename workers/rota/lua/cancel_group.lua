#!lua flags=allow-oom
-- Cancel a group, so that it accepts no more members, nothing follows it, and its chains stop. The script returns the
-- remaining members in batches, and the caller cancels them.
-- with: prefix clock entry doorbell counters in_use about_groups incarnations legacy_item task_events waiters following
-- KEYS[1]  tasks
-- ARGV
--   group   id of the group
--   cursor  '0' in the first call, then the cursor of the last reply
-- keys     counts dead delayed doorbell doorbell:* ends ends-sealed ends-untold ends:* epitaphs events events-on former
--          group-members:* group:* groups idle keys members meta patterns paused progress queue:* queues ready
--          replies:* result:* served tasks tickets times:* totals turns:* unique:* waiters
-- returns  0|1 whether the group was open until this call, the next cursor ('0' after the last batch), and the ids of a
--          batch of members. A later call returns 0, '0' and no ids if the group has ended since the first call; the
--          cancellation has then succeeded
-- Invariant: nothing that was to follow the group is enqueued after this call.
local CHUNK = 500
local group, cursor, now = ARGV[1], ARGV[2], redis_now()
guard_task_keys()
redis.call('HLEN', MEMBERS)
local known = redis.call('HMGET', following.group_key(group), 'phase', 'ended_us')
if not known[1] or known[2] then return { 0, '0', {} } end
local chunk = redis.call('SSCAN', following.members_key(group), cursor, 'COUNT', CHUNK)
redis.call('HSET', following.group_key(group), 'phase', 'cancelled')
for i, member in ipairs(#chunk[2] > 0 and redis.call('HMGET', MEMBERS, unpack(chunk[2])) or {}) do
  if not member then -- the member's record was deleted by hand, so no other script would remove the member
    redis.call('HSET', MEMBERS, chunk[2][i], group)
    follow('purged', now, { chunk[2][i] })
  end
end
following.end_group_if_over(group, now)
return { 1, chunk[1], chunk[2] }
