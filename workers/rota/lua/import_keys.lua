#!lua
-- Import keys that an export has copied unchanged: settings, schedules, groups, results, and the records of ended
-- tasks.
-- with: prefix clock imports
-- KEYS[1]  tasks
-- ARGV
--   file    digest of the file
--   before  number of its lines that earlier calls have imported
--   after   number of its lines that will have been imported after this call
--   key, kind, expires, count, values  each key with `count` values, up to 500 values in all
--     key      without the prefix
--     kind     how the values are written: the type of the key; `counters` for a hash whose values are added; `hold`
--              for a string that is written only if the key does not exist
--     expires  Unix time in milliseconds, '' for never
--     values   fields and values of a hash, scores and members of a sorted set, items of a list, members of a set, or
--              the text of a string
-- keys     ends ends-sealed ends-untold ends:* former group-members:* group:* groups lives members meta paused queues
--          rate:* rates result:* schedules schedules-alive schedules-declared schedules-due sent:* tasks totals
--          unique:*
-- returns  the number of lines that have been imported, -1 if the namespace is not importing this file
-- Invariant: the lines of a file are imported once and in order, even if a call is repeated.
local FIRST, GROUP = 4, '^group%-members:(.*)$'
local file, before, after = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local known, imported = unfinished_import()
if known ~= file then return -1 end
if imported ~= before then return imported end
local now_ms = math.floor(redis_now() / 1000)

local LENGTHS = {
  hash = 'HLEN', counters = 'HLEN', set = 'SCARD', zset = 'ZCARD', list = 'LLEN', string = 'GET', hold = 'GET',
}
local WRITES = { hash = 'HSET', set = 'SADD', zset = 'ZADD', list = 'RPUSH', string = 'SET', hold = 'SET' }

local function each_key(visit)
  local at = FIRST
  while at < #ARGV do
    local key, kind, expires, count = unpack(ARGV, at, at + 3)
    count = tonumber(count)
    local values = { unpack(ARGV, at + 4, at + 3 + count) }
    visit(PREFIX .. key, key, kind, tonumber(expires), values)
    at = at + 4 + count
  end
end

-- Each call checks the types of all keys before the first write.
local held = {}
each_key(function(key, _, kind) held[key] = redis.call(LENGTHS[kind], key) end)
redis.call('HLEN', PREFIX .. 'members')

-- A group member that is not in the file ended while the export ran. Add it to `members`, because otherwise
-- heal_members could not remove it from the group.
local function note_ended_members(group, ids)
  for i, body in ipairs(redis.call('HMGET', KEYS[1], unpack(ids))) do
    if not body then redis.call('HSET', PREFIX .. 'members', ids[i], group) end
  end
end

each_key(function(key, name, kind, expires, values)
  if expires and expires <= now_ms or kind == 'hold' and held[key] then return end
  if kind == 'counters' then
    for i = 1, #values, 2 do redis.call('HINCRBY', key, values[i], values[i + 1]) end
  else
    redis.call(WRITES[kind], key, unpack(values))
  end
  if expires then redis.call('PEXPIRE', key, expires - now_ms) end
  local group = string.match(name, GROUP)
  if group then note_ended_members(group, values) end
end)
note_lines(file, after)
return tonumber(after)
