#!lua flags=allow-oom
-- Store a master's conditions, and record when each closed queue was first found closed. A queue is closed if it is
-- paused, if its condition keeps entries waiting, or if its condition fails. The next claim from the queue deletes the
-- recorded time.
-- with: prefix clock numbers entry doorbell closing
-- KEYS[1]  tasks
-- ARGV
--   ttl               lifetime of these definitions in milliseconds; definitions from earlier calls keep their own
--                     lifetimes
--   name, kind, text  condition: its name, `hours` or `lua`, and its text, see shared/condition.lua
-- keys     closed conditions counts doorbell doorbell:* events-on former idle members patterns paused progress queue:*
--          ready served shares tasks times:* turns:* waiters
-- returns  a row per closed queue: queue, for how many microseconds it has been closed, the name of its condition (''
--          if it is paused), and the error of the condition or ''
-- A call checks at most 100 queues from each of `closed`, `paused`, `ready` and `shares`, chosen at random if there are
-- more. One evaluation takes 30 to 80 µs, so with 500 queues from each, this script would block turns for 60 ms. The
-- masters have the same limit, CLOSED_A_READING.
-- Invariant: the time at which a queue was found closed is kept while it stays closed, regardless of which master runs
-- the script.
local MOST = 100
local now = redis_now()
local ttl = tonumber(ARGV[1])
local until_us = digits_of(now + ttl * 1000)
if #ARGV == 1 and redis.call('EXISTS', PREFIX .. 'paused', CONDITIONS, CLOSED) == 0 then return {} end

-- A key of the wrong type disables conditions, but does not stop the master.
for i = 2, #ARGV, 3 do
  local name, kind, text = unpack(ARGV, i, i + 2)
  redis.pcall('HSET', CONDITIONS, name, until_us .. ' ' .. kind .. ' ' .. text)
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

local checked, rows = {}, {}
local function check(queue)
  if checked[queue] then return end
  checked[queue] = true
  local name, fault = closed_by(queue, now)
  if not name or (name ~= '' and not fault and entries_in(queue) == 0) then
    redis.pcall('HDEL', CLOSED, queue)
    return
  end
  local since = closed_since(queue)
  if not since or since > now then redis.pcall('HSET', CLOSED, queue, digits_of(now)) end
  rows[#rows + 1] = { queue, math.max(0, now - (since or now)), name, fault or '' }
end

for _, queue in ipairs(fields_of(CLOSED)) do check(queue) end
for _, queue in ipairs(members_of(PREFIX .. 'paused')) do check(queue) end
if #defined > 0 then
  for _, queue in ipairs(members_of(PREFIX .. 'ready')) do check(queue) end
  for _, queue in ipairs(fields_of(PREFIX .. 'shares')) do check(queue) end
end
return rows
