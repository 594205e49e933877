#!lua flags=no-writes
-- Task events behind a place in their stream, oldest first.
-- with: prefix
-- KEYS[1]  tasks
-- ARGV
--   place  the id of an event, '0' before all of them, '$' behind them
--   most   how many, up to 500
-- keys     events events-on tasks
-- returns  whether somebody wants events 0|1, the id of the oldest kept and of the latest, '' when there is none, then
--          for each its id and its fields with their values
local EVENTS = PREFIX .. 'events'
local place, most = ARGV[1], ARGV[2]
local oldest = redis.call('XRANGE', EVENTS, '-', '+', 'COUNT', 1)[1]
local latest = redis.call('XREVRANGE', EVENTS, '+', '-', 'COUNT', 1)[1]
local found = place == '$' and {} or redis.call('XRANGE', EVENTS, '(' .. place, '+', 'COUNT', most)
return { redis.call('EXISTS', PREFIX .. 'events-on'), oldest and oldest[1] or '', latest and latest[1] or '', found }
