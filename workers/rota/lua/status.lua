#!lua flags=no-writes
-- Where an id stands.
-- with: prefix clock entry lists in_use former bare standing
-- KEYS[1]  tasks
-- ARGV     id
-- returns  state, queue, due us, failures, crashes, losses, owner, body, epitaph, result
return standing_of(ARGV[1])
