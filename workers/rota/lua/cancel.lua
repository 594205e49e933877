#!lua flags=allow-oom
-- End a waiting task; mark a running one. An empty body is the mark: the claim drops such an entry, and the master
-- learns of a running one at its next renewal.
-- with: prefix clock entry doorbell books ending
-- KEYS[1]  tasks
-- ARGV     id
-- returns  cancelled | running | dead | unknown
local id = ARGV[1]
guard_places()
local body = redis.call('HGET', PREFIX .. 'tasks', id)
if not body then return 'unknown' end
local e = parse_ticket(id, redis.call('HGET', PREFIX .. 'tickets', id))
if e and redis.call('ZSCORE', PREFIX .. 'dead', id) then return 'dead' end
if e then
  redis.call('ZREM', PREFIX .. 'delayed', id)
  redis.call('HDEL', PREFIX .. 'tickets', id)
  count('delayed:' .. e.queue, -1)
  end_task(e, 'cancelled')
  return 'cancelled'
end
redis.call('HSET', PREFIX .. 'tasks', id, '')
for _, owner in ipairs(redis.call('ZRANGE', PREFIX .. 'owners', 0, 499)) do
  for _, text in ipairs(redis.call('LRANGE', PREFIX .. 'inflight:' .. owner, 0, -1)) do
    if string.sub(text, 1, #id + 1) == id .. ' ' then return 'running' end
  end
end
return 'cancelled'
