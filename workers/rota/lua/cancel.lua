#!lua flags=allow-oom
-- End a waiting task; mark a running one. An empty body is the mark: the claim drops such an entry, and the master
-- learns of a running one at its next renewal.
-- with: prefix clock entry bare lists doorbell books in_use former news waiters ending
-- KEYS[1]  tasks
-- ARGV     id
-- returns  cancelled | running | dead | unknown
local id, now = ARGV[1], redis_now()
guard_places()
local body = redis.call('HGET', PREFIX .. 'tasks', id)
if not body then return 'unknown' end
local ticket = parse_ticket(id, redis.call('HGET', PREFIX .. 'tickets', id))
if redis.call('ZSCORE', PREFIX .. 'dead', id) then return 'dead' end

-- What is known of one that waits. Nobody looks for an entry in a lane: then it is what its body says.
local _, queue, name = bare_names(body)
local account = NO_RUN .. (name or '-')
local e = ticket or {
  id = id, queue = queue or 'unknown', kind = 'i', failures = 0, crashes = 0, losses = 0, releases = 0, flag = 'u',
}
local due = redis.call('ZSCORE', PREFIX .. 'delayed', id)
e.due, e.ready = due and from_score(due) or 0, 0
e.text = entry_text(e)

if redis.call('ZREM', PREFIX .. 'delayed', id) == 1 then
  redis.call('HDEL', PREFIX .. 'tickets', id)
  if ticket then count('delayed:' .. e.queue, -1) end
  end_task(e, 'cancelled', now, '-', account)
  return 'cancelled'
end
local owner = holder_of(id)
redis.call('HSET', PREFIX .. 'tasks', id, '')
if owner then return 'running' end
-- Now, as the claim that drops it may be long in coming: it frees its key, and its end is told.
free_unique_key({ id = id, flag = 'u' })
if body ~= '' then note_ends('cancelled', now, '-', { id }, { e.text }, { account }) end
return 'cancelled'
