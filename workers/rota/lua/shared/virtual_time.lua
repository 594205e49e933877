-- The arithmetic of the rotation: start-time fair queueing (Goyal, Vin, Cheng 1996). A queue has a virtual time and a
-- turn. Its domain has a clock and a number of servings. A queue's turn is this number at the time when the queue was
-- last served. It breaks ties in favour of the queue that was served least recently. Each pair is a text of fixed
-- length, so that the texts sort in the order of their numbers, and a hundred queues are compared without parsing.
local STATE_BYTES = 33 -- twenty digits, a space, twelve digits
local CLOCK = '*' -- the field for the state of the domain in `times:DOMAIN`; it is not a valid queue name
local function state_of(time, turn) return string.format('%020.0f %012.0f', math.max(0, time), turn) end
local function numbers_of(state)
  local time, turn = string.match(state or '', '^(%d+) (%d+)$')
  return tonumber(time) or 0, tonumber(turn) or 0
end

-- Charge a queue for `servings` tasks of this cost each. Return the queue's new state, and the new virtual time and
-- number of servings of its domain.
local function serve(state, cost, servings, clock, turn)
  clock, turn = math.max(clock, (numbers_of(state))) + (servings - 1) * cost, turn + servings
  return state_of(clock + cost, turn), clock, turn
end

-- Return the index of the queue to serve next, among the first `size` states. A queue without a valid state comes
-- first, because it was never served or its state was overwritten.
local function next_of(states, size)
  local best, best_state
  for i = 1, size do
    local state = states[i]
    if not state or #state ~= STATE_BYTES then return i end
    if not best or state < best_state then best, best_state = i, state end
  end
  return best
end
