-- Enqueuing occurrences: tasks of kind `p`, in `delayed` until they are due. Their ids begin with the schedule's name.
-- with: ticket

-- Returns false for an id that lives already, or had a life: each occurrence comes once.
local function put_occurrence(id, queue, due, body, now)
  if redis.call('HEXISTS', KEYS[1], id) == 1 or lives_of(id) then return false end
  local e = {
    id = id, queue = queue, kind = 'p', due = due, ready = now, failures = 0, crashes = 0, losses = 0, releases = 0,
    flag = '-',
  }
  redis.call('HSET', KEYS[1], id, body)
  redis.call('HSET', PREFIX .. 'tickets', id, ticket_text(e))
  redis.call('ZADD', PREFIX .. 'delayed', to_score(due), id)
  redis.call('SADD', PREFIX .. 'queues', queue)
  count('delayed:' .. queue, 1)
  total('accepted:' .. queue, 1)
  if tell then tell('scheduled', entry_text(e), nil, nil, 0, 'due_us', string.format('%.0f', due)) end
  return true
end

-- Which schedules may not overlap is known in `schedules-alive`: name -> the id of its occurrence that went on last.
local function note_overlap(name, rule)
  if rule == 'skip' then
    redis.call('HSETNX', ALIVE, name, '')
  else
    redis.call('HDEL', ALIVE, name)
  end
end
