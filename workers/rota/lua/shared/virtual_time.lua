-- The time and the turn of a queue in its rotation, or of a domain, as one text of a fixed length: as texts they stand in the
-- order of their numbers, and a hundred queues are compared without reading one.
local function numbers_of(state)
  local time, turn = string.match(state or '', '^(%d+) (%d+)$')
  return tonumber(time) or 0, tonumber(turn) or 0
end
local STATE_BYTES = 33 -- twenty digits, a space, twelve digits
local function state_of(time, turn) return string.format('%020.0f %012.0f', math.max(0, time), turn) end
local CLOCK = '*' -- the field of a domain's own in `times:DOMAIN`: no queue has that name
