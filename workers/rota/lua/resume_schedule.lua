#!lua flags=allow-oom
-- Let a schedule go on with its next occurrence. What would have been while it was paused was not missed.
-- with: prefix clock numbers schedules
-- KEYS[1]  tasks
-- ARGV
--   name  of the schedule
-- keys     schedules schedules-alive schedules-declared schedules-due tasks
-- returns  resumed | same (it was not paused) | unknown
-- Invariant: no occurrence comes twice.
local name, now = ARGV[1], redis_now()
guard_schedules()
local s = schedule_of(name)
if not s then return 'unknown' end
if s.paused == 0 then return 'same' end
s.paused = 0
reckon_anew(s, now)
keep_schedule(name, s)
return 'resumed'
