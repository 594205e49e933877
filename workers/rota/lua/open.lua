#!lua flags=allow-oom
-- Store the protocol version in a new namespace.
-- with: prefix
-- KEYS[1]  tasks
-- ARGV
--   version  protocol version of the caller
-- keys     meta tasks
-- returns  the protocol version of the namespace
-- Invariant: the version of a namespace is written once.
local version = ARGV[1]
redis.call('HSETNX', PREFIX .. 'meta', 'protocol', version)
return redis.call('HGET', PREFIX .. 'meta', 'protocol')
