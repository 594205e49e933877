#!lua flags=allow-oom
-- Store the progress of running tasks. Masters call this about once a second for the tasks of their workers.
-- with: prefix lists
-- KEYS[1]  tasks
-- ARGV
--   owner, entry, text  owner, entry and progress text of a task; up to 250 x
-- keys     inflight:* owners progress tasks
-- returns  the number of entries that their owners still hold
-- Invariant: progress is stored only for tasks in flight. Every script that removes a task's entry from the list also
-- deletes the progress.
local PROGRESS, held = PREFIX .. 'progress', 0
redis.call('HLEN', PROGRESS)
for at = 1, #ARGV, 3 do
  local owner, entry, text = unpack(ARGV, at, at + 2)
  local position = redis.pcall('LPOS', PREFIX .. 'inflight:' .. owner, entry)
  if type(position) == 'number' then
    redis.call('HSET', PROGRESS, id_of(entry), text)
    held = held + 1
  end
end
return held
