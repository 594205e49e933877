-- Accepting bare items: the id is the item's own where it has one and no live task bears it, else a fresh one.
-- with: bare
local adopted = 0
local function usable_id(id, now)
  while not id or redis.call('HEXISTS', PREFIX .. 'tasks', id) == 1 or lives_of(id) do
    adopted = adopted + 1
    id = string.format('adopted-%.0f-%d', now, adopted)
  end
  return id
end

-- Accept a bare item as a task of `queue`, in no place yet; returns its entry, without text, and its body. An empty
-- item gets a space for a body: an empty one would mean that the task was cancelled.
local function adopt(text, id, queue, kind, due, now)
  local body = text == '' and ' ' or text
  local e = {
    id = usable_id(id, now), queue = queue, kind = kind, due = due, ready = now,
    failures = 0, crashes = 0, losses = 0, releases = 0, flag = '-',
  }
  redis.call('HSET', PREFIX .. 'tasks', e.id, body)
  total('accepted:' .. queue, 1)
  if tell and due > now then
    tell('scheduled', entry_text(e), nil, nil, 0, 'due_us', string.format('%.0f', due))
  elseif tell then
    tell('enqueued', entry_text(e))
  end
  return e, body
end
