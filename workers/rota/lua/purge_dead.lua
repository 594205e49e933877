#!lua flags=allow-oom
-- Forget dead tasks by id.
-- with: prefix entry books bare in_use former news forget
-- KEYS[1]  tasks
-- ARGV
--   ids  up to 500
-- keys     counts dead delayed epitaphs events events-on former keys members patterns paused progress ready tasks
--          tickets totals waiters
-- returns  how many were dead
-- Invariant: only dead tasks are forgotten.
guard_places()
local ids = ARGV
return forget_all(ids)
