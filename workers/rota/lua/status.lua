#!lua flags=no-writes
-- Where an id stands.
-- with: prefix clock entry lists in_use former bare standing
-- KEYS[1]  tasks
-- ARGV     id
-- returns  state, queue, due us, failures, crashes, losses, owner, body, accounts, result (nil when none is kept),
--          progress, when a dead task died (us), the record of its end while that is remembered, kind, ready us
return standing_of(ARGV[1], holder_of)
