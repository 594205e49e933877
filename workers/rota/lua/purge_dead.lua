#!lua flags=allow-oom
-- Forget dead tasks by id.
-- with: prefix entry books bare in_use former news forget
-- KEYS[1]  tasks
-- ARGV     up to 500 ids
-- returns  how many were dead
guard_places()
return forget_all(ARGV)
