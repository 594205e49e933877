-- Whether an occurrence whose time has come may go on: not while one before it lives, where its schedule says
-- `overlap = "skip"`. Such a schedule has a field in `schedules-alive`, the id of its occurrence that went on last. A
-- key of another type keeps nothing from going on.
-- keys     dead schedules-alive tasks
local SCHEDULES_ALIVE = PREFIX .. 'schedules-alive'
local any_overlaps = redis.call('EXISTS', SCHEDULES_ALIVE) == 1

-- A dead one does not live: the next would never come. One that was cancelled lives as long as it runs.
local function lives(id)
  local body = redis.call('HGET', PREFIX .. 'tasks', id)
  if not body or redis.call('ZSCORE', PREFIX .. 'dead', id) then return false end
  return body ~= '' or holder_of(id) ~= nil
end

-- Returns the id that is in the way of this occurrence, nil when none is: then it is noted as living.
local function overlapped_by(name, id)
  local known = redis.pcall('HGET', SCHEDULES_ALIVE, name)
  if type(known) ~= 'string' then return nil end
  if known == id then return nil end -- it was let through before
  if lives(known) then return known end
  redis.call('HSET', SCHEDULES_ALIVE, name, id)
  return nil
end

local function schedule_in(id) return string.match(id, '^(.+):[^:]+$') end
