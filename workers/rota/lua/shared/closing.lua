-- Return what closes a queue to all claims: '' if it is paused, else the name of its condition and the error of the
-- condition, if any; nil if the queue is open.
-- keys     paused
local function closed_by(queue, now)
  if redis.pcall('SISMEMBER', PREFIX .. 'paused', queue) == 1 then return '' end
  local name = condition_of(queue, now)
  if not name then return nil end
  local decision = decision_on(queue, name, now)
  if not decision.open then return name, decision.fault end
end

local function closed_since(queue) return whole(redis.pcall('HGET', CLOSED, queue)) end
