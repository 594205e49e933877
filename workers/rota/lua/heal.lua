#!lua flags=allow-oom
-- Count running, delayed and dead tasks again and replace the counters. Each call counts 500 tickets. The caller
-- repeats the call with the returned cursor until the cursor is '0'. The counters of running tasks are exact at once.
-- The counters of delayed and dead tasks are exact if no task moved between the calls. The script does not detect such
-- moves. If tasks may have moved, the caller has to count again.
-- with: prefix numbers entry ticket lists recount
-- KEYS[1]  tasks
-- ARGV
--   cursor  '0' in the first call, then the cursor of the last reply
-- keys     counts dead healing inflight:* owners rotation tasks tickets
-- returns  the next cursor
-- Invariant: only counters are written. Tasks are not changed.
local healing = PREFIX .. 'healing'
local cursor = ARGV[1]

redis.call('HLEN', PREFIX .. 'counts')
if cursor == '0' then
  redis.call('DEL', healing)
  replace_counts('running:', running_by_queue())
end
local chunk = redis.call('HSCAN', PREFIX .. 'tickets', cursor, 'COUNT', 500)
for i = 1, #chunk[2], 2 do
  local e = parse_ticket(chunk[2][i], chunk[2][i + 1])
  if e then
    local field_prefix = redis.call('ZSCORE', PREFIX .. 'dead', e.id) and 'dead:' or 'delayed:'
    redis.pcall('HINCRBY', healing, field_prefix .. e.queue, 1)
  end
end
if chunk[1] == '0' then
  local sums = { ['dead:'] = {}, ['delayed:'] = {} }
  local found = redis.call('HGETALL', healing)
  for i = 1, #found, 2 do
    local field_prefix, queue = string.match(found[i], '^(%a+:)(.*)$')
    if sums[field_prefix] then sums[field_prefix][queue] = whole(found[i + 1]) end
  end
  for field_prefix, numbers in pairs(sums) do replace_counts(field_prefix, numbers) end
  redis.call('DEL', healing)
end
return chunk[1]
