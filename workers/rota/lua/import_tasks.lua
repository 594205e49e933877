#!lua
-- Import tasks, and items that are not tasks, from an export. Lists are filled from their tails to their heads, so
-- tasks that producers enqueue during the import come after the tasks of the file.
-- with: prefix clock numbers counters imports
-- KEYS[1]  tasks
-- ARGV
--   file    digest of the file
--   before  number of its lines that earlier calls have imported
--   after   number of its lines that will have been imported after this call
--   key, score, text, id, body, attempts, unique, follows  up to 500 x
--     key       where the task is, without the prefix: a lane, an in-flight list, `delayed` or `dead`
--     score     its score in a sorted set
--     text      its entry, its ticket, or the bytes of an item that is not a task
--     id        '' for an item that is not a task
--     body      its body, as in the hash `tasks`
--     attempts  its attempt records; this, `unique` and `follows` are '' if the task has none
-- keys     counts dead delayed epitaphs inflight:* keys members meta owners queue:* queues ready tasks tickets totals
-- returns  the number of lines that have been imported, -1 if the namespace is not importing this file; and the
--          positions, from 1, of the tasks that were left out because a producer has enqueued another task with the
--          same id. If the number is not `after`, nothing was changed
-- Invariant: the lines of a file are imported once and in order, even if a call is repeated.
local FIELDS, FIRST = 8, 4
local file, before, after = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local known, imported = unfinished_import()
if known ~= file then return { -1, {} } end
if imported ~= before then return { imported, {} } end
local now = redis_now()
guard_task_keys()
redis.call('SCARD', PREFIX .. 'queues')
redis.call('HLEN', PREFIX .. 'members')
redis.call('ZCARD', PREFIX .. 'owners')

local DELAYED, DEAD = PREFIX .. 'delayed', PREFIX .. 'dead'
local TICKETS, EPITAPHS = PREFIX .. 'tickets', PREFIX .. 'epitaphs'
local HOLDS, MEMBERS = PREFIX .. 'keys', PREFIX .. 'members'
local hashes = { [KEYS[1]] = {}, [TICKETS] = {}, [EPITAPHS] = {}, [HOLDS] = {}, [MEMBERS] = {} }
local sets, lists = { [DELAYED] = {}, [DEAD] = {} }, {}
local ids, left_out, queues = {}, {}, {}
for at = FIRST, #ARGV, FIELDS do
  local place = PREFIX .. ARGV[at]
  ids[#ids + 1] = ARGV[at + 3]
  if not sets[place] and not lists[place] then
    redis.call('LLEN', place)
    lists[place] = {}
  end
end
local taken = #ids > 0 and redis.call('HMGET', KEYS[1], unpack(ids)) or {}

local function note(hash, id, value)
  local fields = hashes[hash]
  if value ~= '' or hash == KEYS[1] then fields[#fields + 1], fields[#fields + 2] = id, value end
end

-- Prepare to write all data of a task except its place in a lane, list or set, and count the task in its queue.
local function note_task(key, text, id, body, attempts, unique, follows)
  local is_scored = sets[PREFIX .. key]
  note(KEYS[1], id, body)
  note(EPITAPHS, id, attempts)
  note(HOLDS, id, unique)
  note(MEMBERS, id, follows)
  if is_scored then note(TICKETS, id, text) end
  local queue = string.match(text, is_scored and '^(%S+) ' or '^%S+ (%S+) ')
  local state = is_scored and key or string.find(key, '^inflight:') and 'running'
  if state and queue then count_later(state .. ':' .. queue, 1) end
  if not state and queue then queues[queue] = true end
end

for at = FIRST, #ARGV, FIELDS do
  local key, score, text, id, body, attempts, unique, follows = unpack(ARGV, at, at + FIELDS - 1)
  local position = (at - FIRST) / FIELDS + 1
  if id ~= '' and taken[position] then
    left_out[#left_out + 1] = position
    total('cancelled', 1) -- just as following.lua does if the id of a task is taken
  else
    local set = sets[PREFIX .. key]
    local into = set or lists[PREFIX .. key]
    if id ~= '' then note_task(key, text, id, body, attempts, unique, follows) end
    if set then into[#into + 1] = score end
    into[#into + 1] = set and id ~= '' and id or text
  end
end

for hash, fields in pairs(hashes) do
  if #fields > 0 then redis.call('HSET', hash, unpack(fields)) end
end
for set, members in pairs(sets) do
  if #members > 0 then redis.call('ZADD', set, unpack(members)) end
end
for list, texts in pairs(lists) do
  if #texts > 0 then redis.call('LPUSH', list, unpack(texts)) end
  local name = string.sub(list, #PREFIX + 1)
  local owner, lane = string.match(name, '^inflight:(.*)$'), string.match(name, '^queue:(.*)$')
  if owner then redis.call('ZADD', PREFIX .. 'owners', digits_of(now), owner) end
  if lane then redis.call('SADD', PREFIX .. 'ready', (string.gsub(lane, '%-delayed$', ''))) end
end
for queue in pairs(queues) do redis.call('SADD', PREFIX .. 'queues', queue) end
write_counts()
note_lines(file, after)
return { tonumber(after), left_out }
