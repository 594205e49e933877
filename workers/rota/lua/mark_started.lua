#!lua flags=allow-oom
-- Mark the entry of a task that may be started at most once, before the worker starts it. From then on, no script gives
-- the task back when the worker dies. Only the worker can return it, if it has not started the task after all.
-- with: prefix start_mark
-- KEYS[1]  tasks
-- ARGV
--   owner  owner that holds the entry
--   entry  the entry as it was claimed
-- keys     inflight:* owners tasks
-- returns  the entry with its mark, or '' if the owner is not registered or does not hold the entry; in that case the
--          task must not be started
-- Invariant: a repeated call finds the marked entry and returns the same reply.
local owner, entry = ARGV[1], ARGV[2]
local inflight, marked = PREFIX .. 'inflight:' .. owner, marked_text(entry)
if not redis.call('ZSCORE', PREFIX .. 'owners', owner) then return '' end
if redis.call('LPOS', inflight, marked) then return marked end
local position = redis.call('LPOS', inflight, entry)
if not position then return '' end
redis.call('LSET', inflight, position, marked)
return marked
