#!lua flags=allow-oom
-- Let a schedule go on with its next occurrence. What would have been while it was paused was not missed.
-- with: prefix clock numbers schedules
-- KEYS[1]  tasks
-- ARGV     name
-- returns  resumed | same (it was not paused) | unknown
local name, now = ARGV[1], redis_now()
guard_schedules()
local s = schedule_of(name)
if not s then return 'unknown' end
if s.paused == 0 then return 'same' end
s.paused = 0
reckon_anew(s, now)
keep_schedule(name, s)
return 'resumed'
