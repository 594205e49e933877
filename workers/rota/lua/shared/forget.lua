-- Delete a dead task. Return whether it was dead.
-- with: ticket
-- keys     dead epitaphs tasks tickets
local function forget(id)
  if redis.call('ZREM', PREFIX .. 'dead', id) == 0 then return false end
  local ticket = redis.call('HGET', PREFIX .. 'tickets', id)
  local e = parse_ticket(id, ticket)
  if report and e then report('purged', id .. ' ' .. ticket) end
  redis.call('HDEL', PREFIX .. 'tickets', id)
  redis.call('HDEL', PREFIX .. 'epitaphs', id)
  if redis.call('HDEL', PREFIX .. 'tasks', id) == 1 then total('purged', 1) end
  if e then
    count('dead:' .. e.queue, -1)
    if string.find(e.flag, '%d') then incarnation_ended(id) end
  end
  return true
end

-- Return how many of these tasks were dead.
local function forget_all(ids)
  local forgotten = 0
  for _, id in ipairs(ids) do
    if forget(id) then forgotten = forgotten + 1 end
  end
  return forgotten
end
