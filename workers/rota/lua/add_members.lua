#!lua
-- Accept tasks, as `enqueue` does, together with the chains that follow them, and make them members of a group. The
-- script can also open and close the group. A server that is out of memory refuses this script, just as it refuses
-- `enqueue`.
-- with: own_args prefix sent clock numbers entry doorbell counters in_use about_groups incarnations legacy_item
-- with: task_events
-- with: waiters following
-- taking along: enqueue
-- KEYS[1]  tasks
-- ARGV
--   nonce                 name and number of the call, see shared/sent.lua
--   group                 id of the group, '' for none
--   opens                 0|1: whether to open the group if it does not exist
--   on_end                text of the task that follows when the group ends, as in shared/following.lua, or ''
--   on_dead               text of the task that follows instead if a member is dead, or ''
--   cursor                number of items that the group must have accepted before this call, or '' to accept any
--                         number; with '', the items of this call are not counted
--   closes                0|1: whether to close the group after these members
--   id, queue, how, body  task, as in `enqueue`; these and `rest` up to 500 x
--   rest                  text of the chain that follows this task, as in shared/following.lua
-- keys     counts dead delayed doorbell doorbell:* ends ends-sealed ends-untold ends:* epitaphs events events-on former
--          group-members:* group:* groups idle inflight:* keys members meta owners patterns paused progress queue:*
--          queues ready replies:* result:* sent:* served tasks tickets times:* totals turns:* unique:* waiters
-- errors   as in `enqueue`, and ROTA… if the id of the group or a task that follows is not valid; nothing was changed
-- returns  a status, the number of items that the group has accepted so far, and the list of results in the form that
--          `enqueue` returns, which is empty unless the status is `ok`
--   ok      the accepted tasks are members of the group
--   cursor  the group has accepted a different number of items; nothing was changed
--   ended   the group has ended or was cancelled, or it is unknown and `opens` is 0; nothing was changed
-- Invariant: an accepted task becomes a member and is counted by the cursor in the same call. A call with a nonce that
-- was seen within the last 60 s changes nothing, and returns the results of the first call.
local FIRST, FIELDS = 8, 5
local nonce, group, opens, on_end, on_dead, cursor, closes = unpack(own_args, 1, FIRST - 1)
local now, key = redis_now(), following.group_key(group)

local function fault_in(text)
  local at, most = 1, #text
  while at <= most do
    local id, queue, _, _, _, size, body_at = string.match(text, following.item, at)
    if not (name_or_nil(id) and queue_or_nil(queue)) or body_at + size > most + 1 then
      return redis.error_reply('ROTA not a task that can follow: ' .. string.sub(text, at, at + 199))
    end
    at = body_at + size
  end
end

-- Check everything before the first write. A key of the wrong type raises an error here.
local has_group = group ~= ''
if has_group and not name_or_nil(group) then
  return redis.error_reply('ROTA not a name: ' .. string.sub(group, 1, 200))
end
guard_task_keys()
redis.call('HLEN', MEMBERS)
redis.call('SCARD', following.members_key(group))
redis.call('ZCARD', PREFIX .. 'groups')
local known = has_group and redis.call('HMGET', key, 'phase', 'ended_us', 'cursor') or {}
local accepted = whole(known[3]) or 0
ARGV[1] = nonce
local fault = fault_in(on_end) or fault_in(on_dead)
for at = FIRST, #own_args, FIELDS do
  fault = fault or fault_in(own_args[at + 4])
  for i = at, at + 3 do ARGV[#ARGV + 1] = own_args[i] end
end
if fault then return fault end

local is_repeated = is_reply_to(nonce, redis.call('GET', sent_key(nonce)))
if has_group and not is_repeated then
  local has_ended = known[2] or known[1] == 'cancelled' or not known[1] and opens == '0'
  if has_ended or cursor ~= '' and tonumber(cursor) ~= accepted then
    -- This write changes nothing. But a WAIT after it also covers the earlier calls, even if they used other
    -- connections.
    if known[1] then redis.call('HSET', key, 'phase', known[1]) end
    return { has_ended and 'ended' or 'cursor', accepted, {} }
  end
end
local statuses = enqueue()
if statuses.err then return statuses end
if has_group and not (is_repeated and known[1]) and cursor ~= '' then accepted = tonumber(cursor) + #statuses end
if is_repeated then return { 'ok', accepted, statuses } end

local members, ids = {}, {}
for i, status in ipairs(statuses) do
  local at = FIRST + (i - 1) * FIELDS
  local id, rest = own_args[at], own_args[at + 4]
  local is_accepted = status == 'ok' or status == 'unserved' or status == 'unseen'
  if is_accepted and has_group then ids[#ids + 1] = id end
  if is_accepted and (has_group or rest ~= '') then
    members[#members + 1] = id
    members[#members + 1] = (has_group and group or '-') .. (rest ~= '' and '\n' .. rest or '')
  end
end
if #members > 0 then redis.call('HSET', MEMBERS, unpack(members)) end
if not has_group then return { 'ok', 0, statuses } end
if not known[1] then
  redis.call('HSET', key, 'phase', 'open', 'opened_us', digits_of(now), 'then', on_end, 'on_dead', on_dead)
  redis.call('ZADD', PREFIX .. 'groups', to_score(now), group)
end
if #ids > 0 then
  redis.call('SADD', following.members_key(group), unpack(ids))
  redis.pcall('HINCRBY', key, 'total', #ids)
end
redis.call('HSET', key, 'cursor', digits_of(accepted))
if closes == '1' then
  redis.call('HSET', key, 'phase', 'closed')
  following.end_group_if_over(group, now)
end
return { 'ok', accepted, statuses }
