-- Enqueue occurrences: tasks of kind `p`, in `delayed` until they are due. Their ids begin with the name of the
-- schedule.
-- with: place

-- Return false and enqueue nothing if a task with the id is alive, or if the id has a record in `former`, because each
-- occurrence is enqueued only once.
local function put_occurrence(id, queue, due, body, now)
  if redis.call('HEXISTS', KEYS[1], id) == 1 or incarnation_of(id) then return false end
  place(new_entry(id, queue, 'p', due, now), body)
  return true
end

-- Record whether the occurrences of a schedule may overlap. `schedules-alive` has a field for each schedule that may
-- not overlap, with its name and the id of its last occurrence that became ready.
local function note_overlap(name, rule)
  if rule == 'skip' then
    redis.call('HSETNX', ALIVE, name, '')
  else
    redis.call('HDEL', ALIVE, name)
  end
end
