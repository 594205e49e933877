#!lua flags=allow-oom
-- Recount. Call with cursor '0', then with each answer until it is '0' again; 500 tickets a call. `running` counts are
-- exact at once; `delayed` and `dead` ones are exact when nothing moved meanwhile, else off by what moved: run it
-- again.
-- with: prefix numbers entry ticket lists recount
-- KEYS[1]  tasks
-- ARGV
--   cursor  '0' at first
-- keys     counts dead healing inflight:* owners rotation tasks tickets
-- returns  the next cursor
-- Invariant: counts are written from what was counted, and tasks are not touched.
local healing = PREFIX .. 'healing'
local cursor = ARGV[1]

redis.call('HLEN', PREFIX .. 'counts')
if cursor == '0' then
  redis.call('DEL', healing)
  replace_counts('running:', running_by_queue())
end
local portion = redis.call('HSCAN', PREFIX .. 'tickets', cursor, 'COUNT', 500)
for i = 1, #portion[2], 2 do
  local e = parse_ticket(portion[2][i], portion[2][i + 1])
  if e then
    local place = redis.call('ZSCORE', PREFIX .. 'dead', e.id) and 'dead:' or 'delayed:'
    redis.pcall('HINCRBY', healing, place .. e.queue, 1)
  end
end
if portion[1] == '0' then
  local sums = { ['dead:'] = {}, ['delayed:'] = {} }
  local found = redis.call('HGETALL', healing)
  for i = 1, #found, 2 do
    local place, queue = string.match(found[i], '^(%a+:)(.*)$')
    if sums[place] then sums[place][queue] = whole(found[i + 1]) end
  end
  for place, numbers in pairs(sums) do replace_counts(place, numbers) end
  redis.call('DEL', healing)
end
return portion[1]
