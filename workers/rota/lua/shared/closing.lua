-- A queue is closed to all claims by a pause, or by the condition that masters published for the queue.
-- with: numbers shares share_text condition
-- keys     paused
local function condition_of(queue, now)
  local share = {}
  read_share(share, published_share(queue, now), 1)
  return share.condition
end

-- Return '' if a queue is paused, otherwise the name of the condition that closes it and the error of the condition, if
-- any. Return nil if the queue is open.
local function closed_by(queue, now)
  if redis.pcall('SISMEMBER', PREFIX .. 'paused', queue) == 1 then return '' end
  local name = condition_of(queue, now)
  if not name then return nil end
  local decision = decision_on(queue, name, now)
  if not decision.open then return name, decision.fault end
end

local function closed_since(queue) return whole(redis.pcall('HGET', CLOSED, queue)) end
