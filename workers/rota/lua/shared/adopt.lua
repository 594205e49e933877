-- Entries for tasks that come without one: of bare items, and of tasks of which nothing but the body is left.
-- with: bare place
-- keys     epitaphs keys tasks

-- The id of a bare item is its own if it has one and no live task bears that, else a fresh one.
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

-- The entry of a task of which nothing but the body is left, for its life of this number, nil where its id had no
-- others. Its counters are lost; what it may hold elsewhere is looked for.
local function entry_anew(id, queue, kind, due, life, now)
  local has_key = redis.call('HEXISTS', PREFIX .. 'keys', id) == 1
  local has_account = redis.call('HEXISTS', PREFIX .. 'epitaphs', id) == 1
  local number = life and string.format('%.0f', life) or ''
  local flag = (has_key and 'u' or '') .. number .. (has_account and 'X' or '')
  local e = new_entry(id, queue, kind, due, now)
  if flag ~= '' then e.flag = flag end
  return e
end
