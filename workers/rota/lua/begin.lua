#!lua flags=allow-oom
-- Before a task is started that may be started once at most: mark its entry, in its place. From then on nobody gives it
-- back but its worker, which alone knows that it did not start it after all.
-- with: prefix begun
-- KEYS[1]  tasks
-- ARGV
--   owner  of the entry
--   entry  as it was claimed
-- keys     inflight:* owners tasks
-- returns  the entry as it stands now, or '' when the owner does not hold it: then it must not be started
-- Invariant: repeated, as when an answer was lost, it finds the entry with its mark and answers the same.
local owner, entry = ARGV[1], ARGV[2]
local inflight, begun = PREFIX .. 'inflight:' .. owner, begun_text(entry)
if not redis.call('ZSCORE', PREFIX .. 'owners', owner) then return '' end
if redis.call('LPOS', inflight, begun) then return begun end
local place = redis.call('LPOS', inflight, entry)
if not place then return '' end
redis.call('LSET', inflight, place, begun)
return begun
