#!lua flags=no-writes
-- Return the entries of a lane or an in-flight list with their tasks, for an export. The list is read from its tail, as
-- in list_ids.lua. So entries that leave at the head do not shift the entries that are still to be read. Entries that
-- are pushed to the tail do shift the rest. Some entries are then read twice, but none is missed.
-- with: prefix entry in_use incarnations
-- KEYS[1]  tasks
-- ARGV
--   list   key of the list, without the prefix
--   from   number of entries at the tail of the list that earlier calls have read
--   count  number of entries to read
-- keys     epitaphs events-on former inflight:* keys members patterns paused progress queue:* tasks waiters
-- returns  the number of entries read; then per entry, tail first: its text, the body, attempt records and unique key
--          of its task, and what follows the task, as in export_tasks.lua. The body is nil if the text is a legacy
--          item, a tombstone, or anything else that is not the entry of a live task
local list, from, count = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local lines = redis.pcall('LRANGE', PREFIX .. list, -(from + count), -(from + 1))
if lines.err or #lines == 0 then return { 0 } end
local ids = glance_at_all(lines)
for i, id in ipairs(ids) do
  if id ~= '' and any_incarnations and is_tombstone(id, flag_of(lines[i])) then ids[i] = '' end
end
local bodies = redis.call('HMGET', KEYS[1], unpack(ids))
local attempts = redis.call('HMGET', PREFIX .. 'epitaphs', unpack(ids))
local unique = redis.call('HMGET', PREFIX .. 'keys', unpack(ids))
local follows = redis.call('HMGET', PREFIX .. 'members', unpack(ids))
local reply = { #lines }
for i = #lines, 1, -1 do
  local at = #reply
  local body = ids[i] ~= '' and bodies[i] or false
  reply[at + 1], reply[at + 2], reply[at + 3], reply[at + 4], reply[at + 5] =
    lines[i], body, attempts[i], unique[i], follows[i]
end
return reply
