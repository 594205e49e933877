#!lua flags=allow-oom
-- Delete dead tasks by id.
-- with: prefix entry counters legacy_item in_use incarnations task_events forget
-- KEYS[1]  tasks
-- ARGV
--   ids  ids of tasks; up to 500
-- keys     counts dead delayed epitaphs events events-on former keys members patterns paused progress ready tasks
--          tickets totals waiters
-- returns  the number of tasks that were dead
-- Invariant: only dead tasks are deleted.
guard_task_keys()
local ids = ARGV
return forget_all(ids)
