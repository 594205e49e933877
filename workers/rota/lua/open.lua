#!lua flags=allow-oom
-- Mark a fresh namespace with the version of this protocol.
-- with: prefix
-- KEYS[1]  tasks
-- ARGV     our version
-- returns  the version the namespace has
redis.call('HSETNX', PREFIX .. 'meta', 'protocol', ARGV[1])
return redis.call('HGET', PREFIX .. 'meta', 'protocol')
