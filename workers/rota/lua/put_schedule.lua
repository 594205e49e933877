#!lua
-- Store or change a schedule on behalf of a client. The schedule stays until a client removes it. If it is changed, its
-- future occurrences that were enqueued ahead of time are cancelled, and pollers compute its occurrences again,
-- beginning with the present time. A paused schedule stays paused.
-- with: prefix clock numbers entry doorbell counters in_use incarnations legacy_item task_events waiters following
-- with: schedules
-- with: withdrawal
-- KEYS[1]  tasks
-- ARGV
--   name  name of the schedule
--   text  text of the schedule
-- keys     counts dead delayed doorbell doorbell:* ends ends-sealed ends-untold ends:* epitaphs events events-on former
--          group-members:* group:* groups idle keys members meta patterns paused progress queue:* queues ready
--          replies:* result:* schedules schedules-alive schedules-declared schedules-due served tasks tickets times:*
--          totals turns:* unique:* waiters
-- errors   ROTA… if the name is not valid or too long; nothing was changed
-- returns  new | same | changed | declared (a node declares a schedule with this name; nothing was changed)
-- Invariant: a schedule that a node declares is never changed.
local name, text, now = ARGV[1], ARGV[2], redis_now()
if not name_or_nil(name) or #name > LONGEST_NAME then
  return redis.error_reply('ROTA not a name: ' .. string.sub(name, 1, 200))
end
guard_schedules()
guard_task_keys()
local s = schedule_of(name)
if s and s.rank > 0 then return 'declared' end
if s and s.text == text then return 'same' end
local status = s and 'changed' or 'new'
s = s or { last = 0, paused = 0, rank = 0, ahead = '-' }
s.text = text
withdraw(name, s, now, now)
reset_occurrences(s, now)
keep_schedule(name, s)
return status
