#!lua flags=no-writes
-- Return a page of the dead tasks, latest first.
-- with: prefix clock entry ticket
-- KEYS[1]  tasks
-- ARGV
--   offset  number of tasks to skip
--   count   number of tasks to return, up to 500
-- keys     dead epitaphs tasks tickets
-- returns  the number of dead tasks, then a row per task: id, time of death in microseconds, queue, death record, body
local offset, count = tonumber(ARGV[1]), math.max(1, math.min(tonumber(ARGV[2]), 500))
local reply = { redis.call('ZCARD', PREFIX .. 'dead') }
local page = redis.call('ZREVRANGE', PREFIX .. 'dead', offset, offset + count - 1, 'WITHSCORES')
for i = 1, #page, 2 do
  local id = page[i]
  local e = parse_ticket(id, redis.call('HGET', PREFIX .. 'tickets', id))
  reply[#reply + 1] = {
    id,
    from_score(page[i + 1]),
    e and e.queue or '',
    string.match(redis.call('HGET', PREFIX .. 'epitaphs', id) or '{}', '[^\n]*$'),
    redis.call('HGET', PREFIX .. 'tasks', id) or '',
  }
end
return reply
