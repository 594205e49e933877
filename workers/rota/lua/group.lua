#!lua flags=no-writes
-- Return the state of a group.
-- with: prefix numbers group_row
-- KEYS[1]  tasks
-- ARGV
--   group  id of the group
-- keys     group-members:* group:* tasks
-- returns  a row: group; open | closed | cancelled | ended; 0|1 whether it was cancelled; numbers of members: total,
--          left, done, dead, cancelled, expired, purged; cursor; time opened and time ended in microseconds ('' if it
--          has not ended); the id of the task that followed; the ids of the tasks that will follow, by default and if a
--          member is dead; each id is '' if there is none. Nothing if the group is unknown
local group = ARGV[1]
return group_row(group)
