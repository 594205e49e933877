-- Decide whether the condition of a queue lets its tasks start now. `conditions` maps NAME to `UNTIL_US KIND TEXT`, as
-- masters define it (conditions.lua).
--   hours  the text is `KNOWN_US FROM_US-TO_US...`: the intervals in which the queue is open, in order, and the time up
--          to which they are known
--   lua    the text is a chunk that the check of the configuration has accepted (config/conditions.py). It has no
--          loops, calls only functions of `math`, and cannot join texts, so its length limits its cost
-- A definition that is not valid closes the queues that name it, and affects nothing else.
-- keys     closed conditions
local CONDITIONS, CLOSED = PREFIX .. 'conditions', PREFIX .. 'closed'

-- Return the decision on a queue, which is computed once per call. Its fields are `open`; `after`, the number of
-- microseconds after which the worker should check a closed queue again; and `fault`, the error of the condition, if
-- any.
local decider, decisions = nil, {}
local function decision_on(queue, name, now)
  if not decider then
    -- with: decider
    decider = decide
  end
  decisions[queue] = decisions[queue] or decider(queue, name, now)
  return decisions[queue]
end
