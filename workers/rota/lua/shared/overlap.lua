-- Decide whether an occurrence that is due may run. If its schedule has `overlap = "skip"`, it may not run while an
-- earlier occurrence is alive. Such a schedule has a field in `schedules-alive` with the id of its last occurrence that
-- became ready. If the key has the wrong type, every occurrence may run.
-- keys     dead schedules-alive tasks
local SCHEDULES_ALIVE = PREFIX .. 'schedules-alive'
local any_overlaps = redis.call('EXISTS', SCHEDULES_ALIVE) == 1

-- A dead task does not count as alive, because otherwise the next occurrence would never run. A cancelled task counts
-- as alive while it runs.
local function lives(id)
  local body = redis.call('HGET', PREFIX .. 'tasks', id)
  if not body or redis.call('ZSCORE', PREFIX .. 'dead', id) then return false end
  return body ~= '' or holder_of(id) ~= nil
end

-- Return the id of the earlier occurrence that prevents this one. If there is none, record this one as alive and return
-- nil.
local function overlapped_by(name, id)
  local known = redis.pcall('HGET', SCHEDULES_ALIVE, name)
  if type(known) ~= 'string' then return nil end
  if known == id then return nil end -- an earlier call has already allowed this occurrence
  if lives(known) then return known end
  redis.call('HSET', SCHEDULES_ALIVE, name, id)
  return nil
end

local function schedule_in(id) return string.match(id, '^(.+):[^:]+$') end
