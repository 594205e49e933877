#!lua flags=allow-oom
-- A master's round over what is closed: define its conditions, and keep since when queues are paused, or hold entries
-- that their condition lets nobody claim, or have a condition that fails. A claim forgets it: nothing was taken since.
-- with: prefix clock numbers entry doorbell condition shares closing
-- KEYS[1]  tasks
-- ARGV
--   ttl               ms
--   name, kind, text  of each condition
-- keys     closed conditions counts doorbell doorbell:* events-on former idle members patterns paused progress queue:*
--          ready served shares tasks times:* turns:* waiters
-- returns  a row for each queue that is closed, of 100 at most of each sort: queue, for how many us, '' when it is
--          paused or the name of its condition, what is wrong with that one or ''
-- As CLOSED_A_LOOK of masters. An evaluation takes 30 to 80 us: 500 of each sort held turns up for 60 ms.
-- Invariant: since when a queue is closed is kept for as long as it is, whatever master looks.
local MOST = 100
local now = redis_now()
local ttl = tonumber(ARGV[1])
local untill = digits_of(now + ttl * 1000)
if #ARGV == 1 and redis.call('EXISTS', PREFIX .. 'paused', CONDITIONS, CLOSED) == 0 then return {} end

-- Of another type these stop conditions, and no master.
for i = 2, #ARGV, 3 do
  local name, kind, text = unpack(ARGV, i, i + 2)
  redis.pcall('HSET', CONDITIONS, name, untill .. ' ' .. kind .. ' ' .. text)
end
local defined = redis.pcall('HGETALL', CONDITIONS)
for i = 1, #defined, 2 do
  if (whole(string.match(defined[i + 1], '^(%d+) ')) or 0) < now then redis.call('HDEL', CONDITIONS, defined[i]) end
end

local function fields_of(key)
  local found = redis.pcall('HRANDFIELD', key, MOST)
  return found.err and {} or found
end

local function members_of(key)
  local found = redis.pcall('SRANDMEMBER', key, MOST)
  return found.err and {} or found
end

local looked_at, rows = {}, {}
local function look_at(queue)
  if looked_at[queue] then return end
  looked_at[queue] = true
  local name, fault = closed_by(queue, now)
  if not name or (name ~= '' and not fault and entries_in(queue) == 0) then
    redis.pcall('HDEL', CLOSED, queue)
    return
  end
  local since = closed_since(queue)
  if not since or since > now then redis.pcall('HSET', CLOSED, queue, digits_of(now)) end
  rows[#rows + 1] = { queue, math.max(0, now - (since or now)), name, fault or '' }
end

for _, queue in ipairs(fields_of(CLOSED)) do look_at(queue) end
for _, queue in ipairs(members_of(PREFIX .. 'paused')) do look_at(queue) end
if #defined > 0 then
  for _, queue in ipairs(members_of(PREFIX .. 'ready')) do look_at(queue) end
  for _, queue in ipairs(fields_of(PREFIX .. 'shares')) do look_at(queue) end
end
return rows
