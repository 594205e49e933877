#!lua flags=allow-oom
-- Delete dead tasks by id.
-- with: prefix entry books bare in_use former news forget
-- KEYS[1]  tasks
-- ARGV
--   ids  ids of tasks; up to 500
-- keys     counts dead delayed epitaphs events events-on former keys members patterns paused progress ready tasks
--          tickets totals waiters
-- returns  the number of tasks that were dead
-- Invariant: only dead tasks are deleted.
guard_places()
local ids = ARGV
return forget_all(ids)
