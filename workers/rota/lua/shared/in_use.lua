-- What only some fleets use, or only at times. One look tells the others that there is none of it.
local FORMER = PREFIX .. 'former'
local PROGRESS = PREFIX .. 'progress'
local in_use = redis.call('EXISTS', FORMER, PREFIX .. 'paused', PROGRESS) > 0
local any_former = in_use and redis.call('HLEN', FORMER) > 0
local any_paused = in_use and redis.call('SCARD', PREFIX .. 'paused') > 0
local any_progress = in_use and redis.call('EXISTS', PROGRESS) == 1
