#!lua flags=allow-oom
-- Keep what running tasks say of their progress, as their masters carry it here about once a second.
-- with: prefix lists
-- KEYS[1]  tasks
-- ARGV
--   owner, entry, said  up to 250 x
-- keys     inflight:* owners progress tasks
-- returns  how many of these entries are still held by their owners
-- Invariant: nothing is kept of a task that is not in flight; whatever takes its entry out of the list forgets it.
local PROGRESS, held = PREFIX .. 'progress', 0
redis.call('HLEN', PROGRESS)
for at = 1, #ARGV, 3 do
  local owner, entry, said = unpack(ARGV, at, at + 2)
  local place = redis.pcall('LPOS', PREFIX .. 'inflight:' .. owner, entry)
  if type(place) == 'number' then
    redis.call('HSET', PROGRESS, id_of(entry), said)
    held = held + 1
  end
end
return held
