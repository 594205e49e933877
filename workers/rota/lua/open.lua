#!lua flags=allow-oom
-- Mark a fresh namespace with the version of this protocol.
-- with: prefix
-- KEYS[1]  tasks
-- ARGV
--   version  ours
-- keys     meta tasks
-- returns  the version the namespace has
-- Invariant: the version of a namespace is written once.
local version = ARGV[1]
redis.call('HSETNX', PREFIX .. 'meta', 'protocol', version)
return redis.call('HGET', PREFIX .. 'meta', 'protocol')
