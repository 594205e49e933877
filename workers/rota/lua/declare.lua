#!lua flags=allow-oom
-- The schedules that a node's code and configuration have, with each heartbeat of its master.
-- with: prefix clock numbers entry doorbell books in_use former bare news waiters following schedules withdrawal
-- KEYS[1]  tasks
-- ARGV
--   ttl              ms
--   name, age, text  up to 100 x; age: for how many us this node has said so, text: what the schedule says
-- keys     counts dead delayed doorbell doorbell:* ends ends-sealed ends-untold ends:* epitaphs events events-on former
--          group-members:* group:* groups idle keys members meta patterns paused progress queue:* queues ready
--          replies:* result:* schedules schedules-alive schedules-declared schedules-due served tasks tickets times:*
--          totals turns:* unique:* waiters
-- returns  a word each: kept | new | changed | older (another node says something else, and began to later) | client (a
--          client has put one of that name)
-- What was declared by a node last counts, as long as some node goes on declaring that. A schedule that nobody declares
-- any more is removed by a poller: see sweep.
-- Invariant: of several nodes the one that began last to declare a schedule is followed, whatever the order of their
-- calls.
local MOST, FIELDS = 100, 3
if #ARGV > 1 + MOST * FIELDS then return redis.error_reply('ROTA at most 100 schedules a call') end
local now = redis_now()
guard_schedules()
guard_places()

local function declare(name, since, text)
  local s = schedule_of(name)
  if not s then
    keep_schedule(name, { passed = now, last = 0, next = '0', paused = 0, rank = since, ahead = '-', text = text })
    return 'new'
  end
  if s.rank == 0 then return 'client' end
  if s.text == text then return 'kept' end
  local is_newer = since > s.rank or s.rank > now -- or the clock went back
  if not is_newer and (tonumber(redis.call('ZSCORE', DECLARED, name) or '') or 0) > now then return 'older' end
  s.rank, s.text = since, text
  withdraw(name, s, now, now)
  reckon_anew(s, now)
  keep_schedule(name, s)
  return 'changed'
end

local words = {}
local ttl = tonumber(ARGV[1]) or 0
for at = 2, #ARGV, FIELDS do
  local name, age, text = unpack(ARGV, at, at + 2)
  local since, word = now - (whole(age) or 0), 'refused'
  if name_or_nil(name) and #name <= LONGEST_NAME then word = declare(name, math.max(1, since), text) end
  if word == 'new' or word == 'kept' or word == 'changed' then
    redis.call('ZADD', DECLARED, digits_of(now + ttl * 1000), name)
  end
  words[#words + 1] = word
end
return words
