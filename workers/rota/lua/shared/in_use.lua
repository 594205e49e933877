-- Find out which optional features are in use. This file reads the keys of the features only if patterns.lua has found
-- that at least one of these keys exists.
-- with: patterns
-- keys     paused
local any_incarnations = in_use and redis.call('HLEN', FORMER) > 0
local any_paused = in_use and redis.call('SCARD', PREFIX .. 'paused') > 0
local any_progress = in_use and redis.call('EXISTS', PROGRESS) == 1
local any_events = in_use and redis.call('EXISTS', EVENTS_ON) == 1
local any_waiters, any_members = false, false -- a key of the wrong type disables only its feature
if in_use then
  local waiters, members = redis.pcall('HLEN', WAITERS), redis.pcall('HLEN', MEMBERS)
  any_waiters = type(waiters) == 'number' and waiters > 0
  any_members = type(members) == 'number' and members > 0
end
