-- Accepting bare items: the id is the item's own where it has one and no live task bears it, else a fresh one.
-- with: bare place
-- keys     tasks
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
  local e, body = new_entry(usable_id(id, now), queue, kind, due, now), text == '' and ' ' or text
  accept(e, body)
  return e, body
end
