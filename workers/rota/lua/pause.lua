#!lua flags=allow-oom
-- Stop claims from a queue. What runs goes on; pushes are accepted and wait.
-- with: prefix
-- KEYS[1]  tasks
-- ARGV     queue
-- returns  1 when it was not paused before, else 0
return redis.call('SADD', PREFIX .. 'paused', ARGV[1])
