-- The memory of ends: a text that records how the latest tasks ended. A hash field for each task, or even a line built
-- by a script, would cost more than all other work at the end of a task. So the worker writes the text, and the script
-- stores it unchanged. Tasks that end together are a block of `ends`, in which each line is preceded by a line feed:
--   !COUNT HOW AT OWNER    the end of COUNT tasks, each with two lines:
--   ENTRY                  its last entry, which begins with its id
--    RUN                   the record of its run, then a carriage return before each record of an earlier attempt
-- A text that has become long is sealed: it is renamed to `ends:NUMBER`, where NUMBER counts all ends so far, and
-- NUMBER is pushed to the list `ends-sealed`. `ends-untold` has a line `ID AT` for each task that is not to be
-- remembered. Records of the same id from before AT are not returned either.
-- keys     ends ends-sealed ends-untold ends:*
local ENDS, SEALED, UNTOLD = PREFIX .. 'ends', PREFIX .. 'ends-sealed', PREFIX .. 'ends-untold'
local function sealed_key(number) return PREFIX .. 'ends:' .. number end
