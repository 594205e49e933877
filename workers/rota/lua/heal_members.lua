#!lua flags=allow-oom
-- Have follow what follows tasks that are members and do not live: ended by a node of an earlier version, which knows no
-- members, or taken away by hand. How one ended is looked for in the memory of ends; where nothing is found it was purged.
-- with: prefix clock entry doorbell books in_use about_groups former bare news waiters following remembered
-- KEYS[1]  tasks
-- ARGV     cursor: '0' at first
-- returns  the next cursor, '0' behind the last portion, how many had ended
local PORTION = 500
local now, healed = redis_now(), 0
guard_places()

local function how_it_ended(id)
  if redis.call('ZSCORE', PREFIX .. 'dead', id) then return 'dead' end
  if redis.call('HEXISTS', PREFIX .. 'tasks', id) == 1 then return nil end
  return string.match(record_of(id, 0) or 'purged', '^%l+')
end

local portion = redis.call('HSCAN', MEMBERS, ARGV[1], 'COUNT', PORTION)
for i = 1, #portion[2], 2 do
  local id = portion[2][i]
  local how = how_it_ended(id)
  if how then
    follow(how, now, { id })
    healed = healed + 1
  end
end
return { portion[1], healed }
