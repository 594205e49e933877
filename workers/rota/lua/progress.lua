#!lua flags=allow-oom
-- Keep what running tasks say of their progress, as their masters carry it here about once a second.
-- with: prefix lists
-- KEYS[1]  tasks
-- ARGV     up to 250 x: owner, entry, what it says
-- returns  how many of these entries are still held by their owners
-- Invariant: nothing is kept of a task that is not in flight; whatever takes its entry out of the list forgets it.
local PROGRESS, held = PREFIX .. 'progress', 0
redis.call('HLEN', PROGRESS)
for at = 1, #ARGV, 3 do
  local place = redis.pcall('LPOS', PREFIX .. 'inflight:' .. ARGV[at], ARGV[at + 1])
  if type(place) == 'number' then
    redis.call('HSET', PROGRESS, id_of(ARGV[at + 1]), ARGV[at + 2])
    held = held + 1
  end
end
return held
