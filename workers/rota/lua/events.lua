#!lua flags=no-writes
-- Return the task events that follow an event in the stream, oldest first.
-- with: prefix
-- KEYS[1]  tasks
-- ARGV
--   after  id of an event, '0' for the beginning of the stream, '$' for its end
--   most   number of events to return; not checked here, because clients pass BATCH (500) of rota/protocol/store.py
-- keys     events events-on tasks
-- returns  0|1 whether some node has events enabled, the ids of the oldest and the latest event ('' if there is none),
--          then one list of the events, each as { id, { field, value, ... } }
local EVENTS = PREFIX .. 'events'
local after, most = ARGV[1], ARGV[2]
local oldest = redis.call('XRANGE', EVENTS, '-', '+', 'COUNT', 1)[1]
local latest = redis.call('XREVRANGE', EVENTS, '+', '-', 'COUNT', 1)[1]
local found = after == '$' and {} or redis.call('XRANGE', EVENTS, '(' .. after, '+', 'COUNT', most)
return { redis.call('EXISTS', PREFIX .. 'events-on'), oldest and oldest[1] or '', latest and latest[1] or '', found }
