#!lua flags=no-writes
-- Return tasks for an export, with their places in `delayed` and `dead`.
-- with: prefix
-- KEYS[1]  tasks
-- ARGV
--   ids  ids of tasks, or members of `delayed` that have not been adopted; up to 500
-- keys     dead delayed epitaphs former keys members tasks tickets
-- returns  for each id: the key that holds it, `delayed` or `dead`, or '' for neither; its score; its ticket; the
--          incarnation and tombstones of its id; body, attempt records and unique key of its task, and what follows the
--          task. Missing values are nil. A task that has ended has no body
local ids = ARGV
local delayed = redis.call('ZMSCORE', PREFIX .. 'delayed', unpack(ids))
local dead = redis.call('ZMSCORE', PREFIX .. 'dead', unpack(ids))
local tickets = redis.call('HMGET', PREFIX .. 'tickets', unpack(ids))
local former = redis.call('HMGET', PREFIX .. 'former', unpack(ids))
local bodies = redis.call('HMGET', KEYS[1], unpack(ids))
local attempts = redis.call('HMGET', PREFIX .. 'epitaphs', unpack(ids))
local unique = redis.call('HMGET', PREFIX .. 'keys', unpack(ids))
local follows = redis.call('HMGET', PREFIX .. 'members', unpack(ids))
local reply = {}
for i = 1, #ids do
  local key = dead[i] and 'dead' or delayed[i] and 'delayed' or ''
  reply[i] = {
    key, dead[i] or delayed[i], tickets[i], former[i], bodies[i], attempts[i], unique[i], follows[i],
  }
end
return reply
