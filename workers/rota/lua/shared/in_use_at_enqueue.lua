-- As in_use.lua, of what concerns an enqueue.
local FORMER, EVENTS_ON = PREFIX .. 'former', PREFIX .. 'events-on'
local in_use = redis.call('EXISTS', FORMER, EVENTS_ON) > 0
local any_former = in_use and redis.call('HLEN', FORMER) > 0
local any_events = in_use and redis.call('EXISTS', EVENTS_ON) == 1
