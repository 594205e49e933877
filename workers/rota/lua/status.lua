#!lua flags=no-writes
-- Return the state of a task.
-- with: prefix clock entry lists in_use incarnations legacy_item task_state
-- KEYS[1]  tasks
-- ARGV
--   id    id of the task
--   from  number of texts of shared/ends.lua to skip: 0 in the first call, then the number that the last call returned
-- keys     dead delayed ends ends-sealed ends-untold ends:* epitaphs events-on former inflight:* members owners
--          patterns paused progress queue:* result:* tasks tickets waiters
-- returns  state, queue, due time, failures, crashes, losses, owner, body, attempt records, result (nil if none is
--          stored), progress, the time at which a dead task died, the record of its end if it is remembered, kind, the
--          time at which it became ready, and the number of texts to skip in the next call if there are more to search
--          for a record (otherwise 0). Times are in microseconds
local id, from = ARGV[1], tonumber(ARGV[2])
return task_state_of(id, holder_of, from)
