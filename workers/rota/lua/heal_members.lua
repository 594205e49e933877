#!lua flags=allow-oom
-- Find members of groups and chains whose ends were not processed, and process these ends. An end is missed if it was
-- recorded by a node with an earlier version of Rota, which does not know members, or if the task was deleted by hand.
-- A live member is left alone. A member in the dead set ended as dead. For any other member, the records of ended tasks
-- are searched. If there is no such record, the member is treated as purged, so its chain does not go on.
-- with: prefix clock entry doorbell counters in_use about_groups incarnations legacy_item task_events waiters following
-- with: remembered
-- sets: bytes_read
-- KEYS[1]  tasks
-- ARGV
--   cursor  '' in the first call, then the cursor of the last reply
-- keys     counts dead delayed doorbell doorbell:* ends ends-sealed ends-untold ends:* epitaphs events events-on former
--          group-members:* group:* groups idle keys members meta patterns paused progress queue:* queues ready
--          replies:* result:* served tasks tickets times:* totals turns:* unique:* waiters
-- returns  the next cursor ('0' after the last batch), and the number of members that had ended. If the call stops in
--          the middle of a batch, it returns the cursor that it was given, and the next call finds the rest
-- Invariant: each member that has ended is removed from its group once.
local CHUNK = 500
local now, healed, work = redis_now(), 0, 0
guard_task_keys()

-- Search the records of all ended tasks, because the chain continues only if the task was done.
local function remembered_end(id)
  local record, further = nil, 0
  repeat
    bytes_read = 0
    record, further = record_of(id, further)
    work = work + bytes_read
  until record or not further
  return string.match(record or 'purged', '^%l+')
end

local function how_it_ended(id)
  if redis.call('ZSCORE', PREFIX .. 'dead', id) then return 'dead' end
  return redis.call('HEXISTS', PREFIX .. 'tasks', id) == 0 and remembered_end(id) or nil
end

local cursor = ARGV[1]
local chunk = redis.call('HSCAN', MEMBERS, cursor == '' and '0' or cursor, 'COUNT', CHUNK)
for i = 1, #chunk[2], 2 do
  local id = chunk[2][i]
  local how = how_it_ended(id)
  if how then
    follow(how, now, { id })
    healed = healed + 1
  end
  if work >= MOST_READ then return { cursor, healed } end
end
return { chunk[1], healed }
