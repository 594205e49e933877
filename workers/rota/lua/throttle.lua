#!lua flags=allow-oom
-- Check whether a task with a rate limit may start now. If it may not, delay the task until the next free time of its
-- rate. Workers call this before they start such a task.
-- with: prefix clock numbers entry ticket doorbell counters in_use incarnations legacy_item task_events rate
-- KEYS[1]  tasks
-- ARGV
--   owner     owner that holds the entry
--   text      the entry
--   rate      name of the rate
--   interval  microseconds between two starts
--   burst     number of tasks that may start at once after a time without starts
--   latest    time in microseconds after which the task must not start, or ''
-- keys     counts dead delayed doorbell doorbell:* epitaphs events events-on former idle inflight:* keys members owners
--          patterns paused progress queue:* rate:* ready served tasks tickets times:* totals turns:* waiters
-- returns  a status and a number of microseconds, 0 if the status needs none
--   start      the task may start after this many microseconds: 0, or at most 5 ms, for which the worker waits
--   throttled  the task is delayed until this Redis time
--   late       the task could start only after `latest`; nothing was changed
--   gone       the owner does not hold the task, or the task was cancelled; it must not be started, and nothing was
--              changed
-- Invariant: a start that follows k other starts comes at least k intervals, minus the slack of shared/rate.lua, after
-- the first of them.
-- A delayed task has a reserved time, so it is delayed only once, unless tasks before it started late.
local MOST_WAIT = 5000 -- microseconds; a claim, or a delay in the delayed set, takes about as long
local owner, text, latest = ARGV[1], ARGV[2], whole(ARGV[6])
local interval, burst = tonumber(ARGV[4]), tonumber(ARGV[5])
local slack = slack_of(interval, burst)
local rate, inflight = PREFIX .. 'rate:' .. ARGV[3], PREFIX .. 'inflight:' .. owner
local now = redis_now()

local e = parse_entry(text)
local is_held = e and redis.call('ZSCORE', PREFIX .. 'owners', owner) and redis.call('LPOS', inflight, text)
if not is_held or any_incarnations and is_tombstone(e.id, e.flag) then return { 'gone', 0 } end
if (redis.call('HGET', KEYS[1], e.id) or '') == '' then return { 'gone', 0 } end

-- A rate consists of three generic cell rates. `paid` is the time up to which the starts so far have used the rate.
-- `line` also includes the tasks that wait, so a new task comes after them. `again` is for delayed tasks that came back
-- and found that earlier tasks had started late, so that they do not all start at once. A `paid` that is further ahead
-- than a full bucket comes from a clock that was set back. If the rate was changed, all three are scaled.
local function read_rate()
  local state = redis.pcall('GET', rate)
  local fields = { string.match(type(state) == 'string' and #state < 80 and state or '', '^(%d+) (%d+) (%d+) (%d+)$') }
  local before, ahead = whole(fields[4]) or interval, {}
  for i = 1, 3 do ahead[i] = math.max(0, (whole(fields[i]) or 0) - now) * interval / math.max(1, before) end
  return now + math.min(ahead[1], interval + slack + MOST_WAIT), now + ahead[2], now + ahead[3]
end
local paid, line, again = read_rate()

local function write_rate()
  local until_us = math.min(math.max(paid, line, again), LATEST)
  local state = string.format('%.0f %.0f %.0f %.0f', math.min(paid, LATEST), math.min(line, LATEST),
    math.min(again, LATEST), interval)
  local lasts_ms = math.ceil((until_us - now) / 1000) + 1
  redis.call('SET', rate, state, 'PX', lasts_ms)
end

local function delay_until(slot)
  redis.call('LREM', inflight, 1, text)
  count('running:' .. e.queue, -1)
  -- The task was not started, so it loses the mark `b` of a started task.
  e.kind, e.flag = 't', string.gsub(string.gsub(e.flag, 'b', ''), '^$', '-')
  local first = redis.call('ZRANGE', PREFIX .. 'delayed', 0, 0, 'WITHSCORES')
  redis.call('HSET', PREFIX .. 'tickets', e.id, ticket_text(e) .. ' ' .. digits_of(e.due))
  redis.call('ZADD', PREFIX .. 'delayed', to_score(slot), e.id)
  count('delayed:' .. e.queue, 1)
  if not first[1] or slot < from_score(first[2]) then ring_pollers() end
  ring_if_served(e.queue) -- the task no longer counts towards the cap of its queue, so another may start
  if report then report('throttled', entry_text(e), owner, nil, 0, 'due_us', digits_of(slot)) end
  return { 'throttled', digits_of(slot) }
end

local is_back = e.kind == 't'
local slot = math.max(now, paid - slack, is_back and 0 or line - slack)
if latest and slot > latest then return { 'late', 0 } end
if slot - now <= MOST_WAIT then
  paid = math.max(paid, slot) + interval
  line = is_back and math.max(line, paid) or math.max(line, slot) + interval
  write_rate()
  return { 'start', math.ceil(slot - now) }
end
guard_task_keys() -- checks before the first write of this branch
if is_back then
  slot = math.max(slot, again)
  again = slot + interval
  line = math.max(line, again + slack)
else
  line = math.max(line, slot) + interval
end
write_rate()
-- The text of the task's next entry must differ from the text of this entry, even if the clock was set back in the
-- meantime.
return delay_until(math.min(math.max(slot, e.ready + 1), LATEST))
