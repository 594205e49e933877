-- Schedules, whose tasks are enqueued again and again. `schedules` maps a name to a record: a line with the state, then
-- the text of the schedule, which only clients and pollers read. The line is `PASSED LAST NEXT PAUSED RANK AHEAD`;
-- times are in microseconds:
--   PASSED  time up to which all occurrences are processed
--   LAST    time of the last occurrence that became ready, 0 for none
--   NEXT    time of the first occurrence after PASSED, 0 if it is not computed yet, `-` if there is none
--   PAUSED  time at which the schedule was paused, 0 if it is not paused
--   RANK    time at which a node first declared this text, 0 if a client stored it
--   AHEAD   times of the occurrences that were enqueued ahead of time, separated by commas, `-` for none
-- keys     schedules schedules-alive schedules-declared schedules-due
local SCHEDULES, SCHEDULES_DUE = PREFIX .. 'schedules', PREFIX .. 'schedules-due'
local DECLARED, ALIVE = PREFIX .. 'schedules-declared', PREFIX .. 'schedules-alive'
local STATE = '^(%d+) (%d+) ([%d-]+) (%d+) (%d+) ([%d,-]+)\n(.*)$'
local LONGEST_NAME = 100 -- MOST_NAME_CHARACTERS of rota/schedules/schedule.py; an id consists of the name and the time

local function guard_schedules()
  redis.call('HLEN', SCHEDULES)
  redis.call('ZCARD', SCHEDULES_DUE)
  redis.call('ZCARD', DECLARED)
  redis.call('HLEN', ALIVE)
end

-- Return the schedule with this name; nil if there is none or its record is not valid.
local function schedule_of(name)
  local passed, last, following, paused, rank, ahead, text =
    string.match(redis.call('HGET', SCHEDULES, name) or '', STATE)
  if not (whole(passed) and whole(last) and whole(paused) and whole(rank)) then return nil end
  return {
    passed = whole(passed), last = whole(last), next = following, paused = whole(paused), rank = whole(rank),
    ahead = ahead, text = text,
  }
end

-- Store a schedule. It is due at once if its next occurrence has not been computed, and never if it is paused or has
-- ended.
local function keep_schedule(name, s)
  local state = { digits_of(s.passed), digits_of(s.last), s.next, digits_of(s.paused), digits_of(s.rank), s.ahead }
  redis.call('HSET', SCHEDULES, name, table.concat(state, ' ') .. '\n' .. s.text)
  redis.call('ZADD', SCHEDULES_DUE, s.paused == 0 and whole(s.next) or '+inf', name)
end

-- Make pollers compute the future occurrences again, because the text has changed or the schedule was resumed. No
-- occurrence is enqueued twice, even if the clock was set back. If the clock was set back by more than a day, it must
-- have been wrong before, so `last` is ignored.
local MOST_BACK = 86400 * 1000000
local function reset_occurrences(s, now)
  if s.last > now + MOST_BACK then s.last = 0 end
  s.passed, s.next = math.max(now, s.last), '0'
end
