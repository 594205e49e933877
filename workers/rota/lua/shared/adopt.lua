-- Make entries for tasks that have none. These tasks are legacy items, and tasks whose entry was lost but whose body
-- still exists.
-- with: legacy_item place
-- keys     epitaphs keys tasks

-- Return the id that a legacy item names, or a new id if it names none or the id is taken.
local adopted = 0
local function usable_id(id, now)
  while not id or redis.call('HEXISTS', PREFIX .. 'tasks', id) == 1 or incarnation_of(id) do
    adopted = adopted + 1
    id = string.format('adopted-%.0f-%d', now, adopted)
  end
  return id
end

-- Accept a legacy item as a task of `queue`, without putting it in a lane or set. Return its entry (without text) and
-- its body. An empty item gets a space as its body, because an empty body would mean that the task was cancelled.
local function adopt(text, id, queue, kind, due, now)
  local e, body = new_entry(usable_id(id, now), queue, kind, due, now), text == '' and ' ' or text
  accept(e, body)
  return e, body
end

-- Return an entry for a task whose entry was lost. `incarnation` is the number of its incarnation, or nil if its id was
-- never reused. The counters begin at 0, because they are lost. The flag is derived from other keys.
local function rebuilt_entry(id, queue, kind, due, incarnation, now)
  local has_key = redis.call('HEXISTS', PREFIX .. 'keys', id) == 1
  local has_record = redis.call('HEXISTS', PREFIX .. 'epitaphs', id) == 1
  local number = incarnation and string.format('%.0f', incarnation) or ''
  local flag = (has_key and 'u' or '') .. number .. (has_record and 'X' or '')
  local e = new_entry(id, queue, kind, due, now)
  if flag ~= '' then e.flag = flag end
  return e
end
