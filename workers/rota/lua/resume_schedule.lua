#!lua flags=allow-oom
-- Resume a paused schedule. It continues with its next occurrence. Occurrences during the pause do not count as missed.
-- with: prefix clock numbers schedules
-- KEYS[1]  tasks
-- ARGV
--   name  name of the schedule
-- keys     schedules schedules-alive schedules-declared schedules-due tasks
-- returns  resumed | same (it was not paused) | unknown
-- Invariant: no occurrence is enqueued twice.
local name, now = ARGV[1], redis_now()
guard_schedules()
local s = schedule_of(name)
if not s then return 'unknown' end
if s.paused == 0 then return 'same' end
s.paused = 0
reset_occurrences(s, now)
keep_schedule(name, s)
return 'resumed'
