-- The arithmetic of the rotation: start-time fair queueing (Goyal, Vin, Cheng 1996). A queue has a virtual time and a
-- turn, and so has its domain: its clock, and the number of its servings, so that ties go to the queue that was served
-- least recently. Each pair is one text of a fixed length: as texts they have the order of their numbers, and a hundred
-- queues are compared without reading a number.
local STATE_BYTES = 33 -- twenty digits, a space, twelve digits
local CLOCK = '*' -- the field of a domain's own state in `times:DOMAIN`: no queue has that name
local function state_of(time, turn) return string.format('%020.0f %012.0f', math.max(0, time), turn) end
local function numbers_of(state)
  local time, turn = string.match(state or '', '^(%d+) (%d+)$')
  return tonumber(time) or 0, tonumber(turn) or 0
end

-- Serve a queue so many times, each at this cost; returns its state, and the clock and the turn of its domain.
local function serve(state, cost, servings, clock, turn)
  clock, turn = math.max(clock, (numbers_of(state))) + (servings - 1) * cost, turn + servings
  return state_of(clock + cost, turn), clock, turn
end

-- The index of the queue to serve next, among the first `size` of these. What has no state was never served, or
-- somebody overwrote it: it comes first.
local function next_of(states, size)
  local best, best_state
  for i = 1, size do
    local state = states[i]
    if not state or #state ~= STATE_BYTES then return i end
    if not best or state < best_state then best, best_state = i, state end
  end
  return best
end
