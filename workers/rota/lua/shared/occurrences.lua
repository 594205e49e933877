-- Enqueuing occurrences: tasks of kind `p`, in `delayed` until they are due. Their ids begin with the schedule's name.
-- with: place

-- Returns false for an id that lives already, or had a life: each occurrence comes once.
local function put_occurrence(id, queue, due, body, now)
  if redis.call('HEXISTS', KEYS[1], id) == 1 or lives_of(id) then return false end
  place(new_entry(id, queue, 'p', due, now), body)
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
