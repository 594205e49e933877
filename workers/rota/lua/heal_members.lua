#!lua flags=allow-oom
-- Have follow what follows tasks that are members and do not live: ended by a node of an earlier version, which knows
-- no members, or taken away by hand. How one ended is looked for in the memory of ends; where nothing is found it was
-- purged.
-- with: prefix clock entry doorbell books in_use about_groups former bare news waiters following remembered
-- KEYS[1]  tasks
-- ARGV
--   cursor  '' at first
-- keys     counts dead delayed doorbell doorbell:* ends ends-sealed ends-untold ends:* epitaphs events events-on former
--          group-members:* group:* groups idle keys members meta patterns paused progress queue:* queues ready
--          replies:* result:* served tasks tickets times:* totals turns:* unique:* waiters
-- returns  the next cursor, '0' behind the last portion, how many had ended. The cursor of the call when it has looked
--          enough before the end of its portion: those that had ended are gone from it
-- Invariant: each member that has ended is taken off its group once.
local PORTION = 500
local now, healed, work = redis_now(), 0, 0
guard_places()

-- A chain goes on by it, so the whole memory is looked through.
local function remembered_end(id)
  local record, further = nil, 0
  repeat
    looked = 0
    record, further = record_of(id, further)
    work = work + looked
  until record or not further
  return string.match(record or 'purged', '^%l+')
end

local function how_it_ended(id)
  if redis.call('ZSCORE', PREFIX .. 'dead', id) then return 'dead' end
  return redis.call('HEXISTS', PREFIX .. 'tasks', id) == 0 and remembered_end(id) or nil
end

local cursor = ARGV[1]
local portion = redis.call('HSCAN', MEMBERS, cursor == '' and '0' or cursor, 'COUNT', PORTION)
for i = 1, #portion[2], 2 do
  local id = portion[2][i]
  local how = how_it_ended(id)
  if how then
    follow(how, now, { id })
    healed = healed + 1
  end
  if work >= MOST_LOOKED then return { cursor, healed } end
end
return { portion[1], healed }
