-- The beginning of every key of the namespace, including the hash tag. KEYS[1] is always PREFIX .. 'tasks', from which
-- PREFIX is derived. Nothing else depends on the hash tag.
-- keys     queue:*
local PREFIX = string.sub(KEYS[1], 1, -6)

local function ready_lane(queue) return PREFIX .. 'queue:' .. queue end
local function delayed_lane(queue) return PREFIX .. 'queue:' .. queue .. '-delayed' end
local function lane_of(queue, kind) return kind == 'i' and ready_lane(queue) or delayed_lane(queue) end
