#!lua flags=no-writes
-- Where an id stands.
-- with: prefix clock entry lists in_use former bare standing
-- KEYS[1]  tasks
-- ARGV
--   id    of the task
--   from  behind how many texts of the memory of ends to look: 0, then as returned
-- keys     dead delayed ends ends-sealed ends-untold ends:* epitaphs events-on former inflight:* members owners
--          patterns paused progress queue:* result:* tasks tickets waiters
-- returns  state, queue, due us, failures, crashes, losses, owner, body, accounts, result (nil when none is kept),
--          progress, when a dead task died (us), the record of its end while that is remembered, kind, ready us, and
--          when there is more to look through for a record, behind how many texts to go on (else 0)
local id, from = ARGV[1], tonumber(ARGV[2])
return standing_of(id, holder_of, from)
