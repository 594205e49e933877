-- Check with one command whether any optional feature is in use. If so, in_use.lua finds out which features are in use.
-- Only patterns are already checked here, because marks.lua defines its functions only if masters have published
-- patterns.
-- keys     events-on former members patterns paused progress waiters
local FORMER, PROGRESS, EVENTS_ON = PREFIX .. 'former', PREFIX .. 'progress', PREFIX .. 'events-on'
local WAITERS, PATTERNS, MEMBERS = PREFIX .. 'waiters', PREFIX .. 'patterns', PREFIX .. 'members'
local in_use = redis.call('EXISTS', FORMER, PREFIX .. 'paused', PROGRESS, EVENTS_ON, WAITERS, PATTERNS, MEMBERS) > 0
local any_patterns = in_use and redis.call('EXISTS', PATTERNS) == 1
