-- Accepting bare items: the id is the item's own where it has one and no live task bears it, else a fresh one.
local function fresh_id(now)
  return string.format('adopted-%.0f-%.0f', now, redis.call('INCR', PREFIX .. 'lives'))
end

local function usable_id(id, now)
  if id and redis.call('HEXISTS', PREFIX .. 'tasks', id) == 0 then return id end
  return fresh_id(now)
end

-- Accept a bare item as a task of `queue`, in no place yet; answers its entry, without text.
local function adopt(text, id, queue, kind, due, now)
  local e = {
    id = usable_id(id, now), queue = queue, kind = kind, due = due, ready = now,
    failures = 0, crashes = 0, losses = 0, releases = 0, flag = '-',
  }
  redis.call('HSET', PREFIX .. 'tasks', e.id, text)
  total('accepted:' .. queue, 1)
  return e
end
