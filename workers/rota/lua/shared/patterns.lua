-- Whether masters announced patterns of queues: see shared/marks.lua. Where they did not there are none of the functions for
-- these, so that they cost a call no more than this look.
local any_patterns = redis.call('EXISTS', PREFIX .. 'patterns') == 1
