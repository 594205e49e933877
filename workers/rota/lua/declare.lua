#!lua flags=allow-oom
-- Store the schedules that a node's code and configuration declare. The node's master calls this with each heartbeat.
-- with: prefix clock numbers entry doorbell counters in_use incarnations legacy_item task_events waiters following
-- with: schedules
-- with: withdrawal
-- KEYS[1]  tasks
-- ARGV
--   ttl              lifetime of the declarations in milliseconds
--   name, age, text  schedule: its name, for how many microseconds this node has declared this text, and the text; up
--                    to 100 x
-- keys     counts dead delayed doorbell doorbell:* ends ends-sealed ends-untold ends:* epitaphs events events-on former
--          group-members:* group:* groups idle keys members meta patterns paused progress queue:* queues ready
--          replies:* result:* schedules schedules-alive schedules-declared schedules-due served tasks tickets times:*
--          totals turns:* unique:* waiters
-- errors   ROTA… if there are more than 100 schedules; nothing was changed
-- returns  a status per schedule: kept | new | changed | older (another node began later to declare a different text) |
--          client (a client stored a schedule with that name) | refused (the name is not valid)
-- If a schedule is changed, its future occurrences that have already been enqueued are cancelled. An older text
-- replaces a newer text only when no node declares the newer text any longer. A poller removes a schedule that is no
-- longer declared; see sweep.lua.
-- Invariant: if several nodes declare different texts, the text that a node began to declare last is stored, regardless
-- of the order of the calls.
local MOST, FIELDS = 100, 3
if #ARGV > 1 + MOST * FIELDS then return redis.error_reply('ROTA at most 100 schedules a call') end
local now = redis_now()
guard_schedules()
guard_task_keys()

local function declare(name, since, text)
  local s = schedule_of(name)
  if not s then
    keep_schedule(name, { passed = now, last = 0, next = '0', paused = 0, rank = since, ahead = '-', text = text })
    return 'new'
  end
  if s.rank == 0 then return 'client' end
  if s.text == text then return 'kept' end
  local is_newer = since > s.rank or s.rank > now -- the second comparison is true if the clock was set back
  if not is_newer and (tonumber(redis.call('ZSCORE', DECLARED, name) or '') or 0) > now then return 'older' end
  s.rank, s.text = since, text
  withdraw(name, s, now, now)
  reset_occurrences(s, now)
  keep_schedule(name, s)
  return 'changed'
end

local statuses = {}
local ttl = tonumber(ARGV[1]) or 0
for at = 2, #ARGV, FIELDS do
  local name, age, text = unpack(ARGV, at, at + 2)
  local since, status = now - (whole(age) or 0), 'refused'
  if name_or_nil(name) and #name <= LONGEST_NAME then status = declare(name, math.max(1, since), text) end
  if status == 'new' or status == 'kept' or status == 'changed' then
    redis.call('ZADD', DECLARED, digits_of(now + ttl * 1000), name)
  end
  statuses[#statuses + 1] = status
end
return statuses
