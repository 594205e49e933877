#!lua flags=allow-oom
-- End a waiting task; mark a running one. An empty body is the mark: the claim drops such an entry, and the master
-- learns of a running one at its next renewal.
-- with: prefix clock entry lists doorbell books in_use former ending
-- KEYS[1]  tasks
-- ARGV     id
-- returns  cancelled | running | dead | unknown
local id = ARGV[1]
guard_places()
local body = redis.call('HGET', PREFIX .. 'tasks', id)
if not body then return 'unknown' end
local e = parse_ticket(id, redis.call('HGET', PREFIX .. 'tickets', id))
if redis.call('ZSCORE', PREFIX .. 'dead', id) then return 'dead' end
if redis.call('ZREM', PREFIX .. 'delayed', id) == 1 then
  redis.call('HDEL', PREFIX .. 'tickets', id)
  if e then count('delayed:' .. e.queue, -1) end
  end_task(e or { id = id, flag = 'u' }, 'cancelled')
  return 'cancelled'
end
local owner = holder_of(id)
redis.call('HSET', PREFIX .. 'tasks', id, '')
if owner then return 'running' end
free_unique_key({ id = id, flag = 'u' }) -- now: the claim that drops it may be long in coming
return 'cancelled'
