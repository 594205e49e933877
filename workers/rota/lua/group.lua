#!lua flags=no-writes
-- How it is with a group.
-- with: prefix numbers group_row
-- KEYS[1]  tasks
-- ARGV
--   group  its id
-- keys     group-members:* group:* tasks
-- returns  a row: group, open | closed | cancelled | ended, whether it was cancelled 0|1, total, left, done, dead,
--          cancelled, expired, purged, cursor, opened us, ended us or '', the id of what followed or '', those of what
--          is to follow then and if one is dead, each or ''; nothing when it is not known
local group = ARGV[1]
return group_row(group)
