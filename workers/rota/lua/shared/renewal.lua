-- Renewing a lease. Extends that of an owner; returns false when it is no longer registered.
local function extend_lease(owner, expires)
  if not redis.call('ZSCORE', PREFIX .. 'owners', owner) then return false end
  redis.call('ZADD', PREFIX .. 'owners', 'XX', expires, owner)
  return true
end

-- Adds to `entries` those that the owner holds and somebody asked to cancel. Not their ids: when the answer is read, another
-- task of that id may run there.
local function add_cancelled(owner, entries)
  local tasks = PREFIX .. 'tasks'
  for _, line in ipairs(lines_of(PREFIX .. 'inflight:' .. owner)) do
    local id = id_of(line)
    if redis.call('HSTRLEN', tasks, id) == 0 and redis.call('HEXISTS', tasks, id) == 1 then entries[#entries + 1] = line end
  end
end
