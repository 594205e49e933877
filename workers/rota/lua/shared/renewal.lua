-- Renew leases. `extend_leases` extends the leases of the owners that are registered. It returns these owners, and the
-- owners that are not registered.
-- keys     inflight:* owners tasks
local function extend_leases(owners, expires)
  local extended, lost, scored = {}, {}, {}
  if #owners == 0 then return extended, lost end
  for i, score in ipairs(redis.call('ZMSCORE', PREFIX .. 'owners', unpack(owners))) do
    local list = score and extended or lost
    list[#list + 1] = owners[i]
  end
  for i, owner in ipairs(extended) do scored[2 * i - 1], scored[2 * i] = expires, owner end
  if #extended > 0 then redis.call('ZADD', PREFIX .. 'owners', 'XX', unpack(scored)) end
  return extended, lost
end

-- Return the entries of these owners whose tasks were cancelled. It returns entries rather than ids, because another
-- task with the same id may be running when the reply is read.
local function cancelled_of(owners)
  local tasks, inflight, cancelled = PREFIX .. 'tasks', {}, {}
  for i, owner in ipairs(owners) do inflight[i] = PREFIX .. 'inflight:' .. owner end
  if #owners == 0 or redis.call('EXISTS', unpack(inflight)) == 0 then return cancelled end
  for _, list in ipairs(inflight) do
    for _, line in ipairs(lines_of(list)) do
      local id = id_of(line)
      if redis.call('HSTRLEN', tasks, id) == 0 and redis.call('HEXISTS', tasks, id) == 1 then
        cancelled[#cancelled + 1] = line
      end
    end
  end
  return cancelled
end
