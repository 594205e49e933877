-- What only some fleets use, or only at times: one look tells the others that there is none of it. What it is,
-- in_use.lua asks then; here, whether masters announced patterns of queues (see marks.lua). Where they did not there
-- are none of the functions for these.
-- keys     events-on former members patterns paused progress waiters
local FORMER, PROGRESS, EVENTS_ON = PREFIX .. 'former', PREFIX .. 'progress', PREFIX .. 'events-on'
local WAITERS, PATTERNS, MEMBERS = PREFIX .. 'waiters', PREFIX .. 'patterns', PREFIX .. 'members'
local in_use = redis.call('EXISTS', FORMER, PREFIX .. 'paused', PROGRESS, EVENTS_ON, WAITERS, PATTERNS, MEMBERS) > 0
local any_patterns = in_use and redis.call('EXISTS', PATTERNS) == 1
