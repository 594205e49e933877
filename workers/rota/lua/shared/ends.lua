-- The memory of ends: how the last tasks that ended did, as text. A field of a hash for each, and even a line that a
-- script puts together, would cost more than all else that an end does; so a worker writes down what its tasks leave,
-- and the script keeps that as it came. Those that end together are a block of `ends`, whose lines have their line
-- feeds before them:
--   !COUNT HOW AT OWNER    of so many tasks, each in two lines:
--   ENTRY                  its last entry, which begins with its id
--    ACCOUNT               of its run, and behind a carriage return each what is known of an attempt before
-- A text that has grown long is sealed: it becomes `ends:NUMBER`, and NUMBER goes to the tail of the list
-- `ends-sealed`. It is that of all ends so far. In `ends-untold` stand lines `ID AT` of tasks of which nothing is to be
-- told, an earlier life of the id included.
-- keys     ends ends-sealed ends-untold ends:*
local ENDS, SEALED, UNTOLD = PREFIX .. 'ends', PREFIX .. 'ends-sealed', PREFIX .. 'ends-untold'
local function sealed_key(number) return PREFIX .. 'ends:' .. number end
