#!lua flags=no-writes
-- Return the state of a group.
-- with: prefix numbers group_row
-- KEYS[1]  tasks
-- ARGV
--   group  id of the group
--   ends   outcomes with which a task ends, for example `done`
-- keys     group-members:* group:* tasks
-- returns  a row: group; open | closed | cancelled | ended; 0|1 whether it was cancelled; numbers of members: total,
--          left; cursor; time opened and time ended in microseconds ('' if it has not ended); the id of the task that
--          followed; the ids of the tasks that will follow, by default and if a member is dead; each id is '' if there
--          is none; then the number of members that ended with each outcome in `ends`. The reply is empty if the group
--          is unknown
local group, ends = ARGV[1], { unpack(ARGV, 2) }
return group_row(group, ends)
