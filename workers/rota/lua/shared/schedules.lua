-- Schedules: what is enqueued again and again. `schedules` has a record by name: a line of state, and behind it what
-- the schedule says, which only clients and pollers read. The line is `PASSED LAST NEXT PAUSED RANK AHEAD`, times in
-- microseconds: up to PASSED all occurrences are dealt with; LAST is the last one whose time had come, 0 for none; NEXT
-- the first behind PASSED, 0 when that is still to be reckoned, `-` when there is none; PAUSED since when it is, 0 when
-- it is not; RANK since when a node says so, 0 when a client put it; AHEAD those enqueued before their time, with
-- commas, `-` for none.
-- keys     schedules schedules-alive schedules-declared schedules-due
local SCHEDULES, SCHEDULES_DUE = PREFIX .. 'schedules', PREFIX .. 'schedules-due'
local DECLARED, ALIVE = PREFIX .. 'schedules-declared', PREFIX .. 'schedules-alive'
local STATE = '^(%d+) (%d+) ([%d-]+) (%d+) (%d+) ([%d,-]+)\n(.*)$'
local LONGEST_NAME = 100 -- MOST_NAME_CHARACTERS of rota/schedules/schedule.py: an id is made of the name and the time

local function guard_schedules()
  redis.call('HLEN', SCHEDULES)
  redis.call('ZCARD', SCHEDULES_DUE)
  redis.call('ZCARD', DECLARED)
  redis.call('HLEN', ALIVE)
end

-- What stands under a name; nil for nothing, or what is not ours.
local function schedule_of(name)
  local passed, last, following, paused, rank, ahead, text =
    string.match(redis.call('HGET', SCHEDULES, name) or '', STATE)
  if not (whole(passed) and whole(last) and whole(paused) and whole(rank)) then return nil end
  return {
    passed = whole(passed), last = whole(last), next = following, paused = whole(paused), rank = whole(rank),
    ahead = ahead, text = text,
  }
end

-- What nobody has reckoned yet is due at once; what is paused, or over, never.
local function keep_schedule(name, s)
  local state = { digits_of(s.passed), digits_of(s.last), s.next, digits_of(s.paused), digits_of(s.rank), s.ahead }
  redis.call('HSET', SCHEDULES, name, table.concat(state, ' ') .. '\n' .. s.text)
  redis.call('ZADD', SCHEDULES_DUE, s.paused == 0 and whole(s.next) or '+inf', name)
end

-- It says something new, or begins again: occurrences behind now are reckoned by that, and none comes a second time,
-- also when the clock went back. By more than a day means that it was wrong before.
local MOST_BACK = 86400 * 1000000
local function reckon_anew(s, now)
  if s.last > now + MOST_BACK then s.last = 0 end
  s.passed, s.next = math.max(now, s.last), '0'
end
