-- The part of in_use.lua that an enqueue needs.
-- keys     events-on former patterns
local FORMER, EVENTS_ON, PATTERNS = PREFIX .. 'former', PREFIX .. 'events-on', PREFIX .. 'patterns'
local in_use = redis.call('EXISTS', FORMER, EVENTS_ON, PATTERNS) > 0
local any_incarnations = in_use and redis.call('HLEN', FORMER) > 0
local any_events = in_use and redis.call('EXISTS', EVENTS_ON) == 1
local any_patterns = in_use and redis.call('EXISTS', PATTERNS) == 1
