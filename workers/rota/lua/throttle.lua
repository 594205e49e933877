#!lua flags=allow-oom
-- Before a task with a rate of its own is started: may it start by now? If not, it leaves its owner's hands, for the
-- time that is kept for it.
-- with: prefix clock numbers entry ticket doorbell books in_use former bare news rate
-- KEYS[1]  tasks
-- ARGV
--   owner     of the entry
--   text      the entry
--   rate      its name
--   interval  us
--   burst     how many starts at once
--   latest    when it may start at last, us, or ''
-- keys     counts dead delayed doorbell doorbell:* epitaphs events events-on former idle inflight:* keys members owners
--          patterns paused progress queue:* rate:* ready served tasks tickets times:* totals turns:* waiters
-- returns  word, us
--   start      so many us from now on: 0, or few enough to wait for them with the task in hand
--   throttled  it is delayed until this Redis time
--   late       its turn would come after the latest: nothing was done
--   gone       its owner does not hold it, or it was cancelled: it must not be started, and nothing was done
-- Invariant: the start behind k others comes at least k intervals, less the slack, after the first of them. Each task
-- that comes back finds time kept for it: it comes back once, unless those before it started late.
local IN_HAND = 5000 -- what a claim is worth; a trip through the delayed set takes as long
local owner, text, latest = ARGV[1], ARGV[2], whole(ARGV[6])
local interval, burst = tonumber(ARGV[4]), tonumber(ARGV[5])
local slack = slack_of(interval, burst)
local rate, inflight = PREFIX .. 'rate:' .. ARGV[3], PREFIX .. 'inflight:' .. owner
local now = redis_now()

local e = parse_entry(text)
local is_held = e and redis.call('ZSCORE', PREFIX .. 'owners', owner) and redis.call('LPOS', inflight, text)
if not is_held or any_former and is_shell(e.id, e.flag) then return { 'gone', 0 } end
if (redis.call('HGET', KEYS[1], e.id) or '') == '' then return { 'gone', 0 } end

-- The state of such a rate, thrice. `paid`: when the starts that were will be paid off. `line`: when those that wait
-- will be, so that who comes anew stands behind them. `again`: when those will have started that came back and found
-- that others before them had started late, so that they do not all come at once. More than a full bucket ahead `paid`
-- is left over from a clock that went back; of a rate that was changed all three are stretched.
local function read_rate()
  local state = redis.pcall('GET', rate)
  local fields = { string.match(type(state) == 'string' and #state < 80 and state or '', '^(%d+) (%d+) (%d+) (%d+)$') }
  local before, ahead = whole(fields[4]) or interval, {}
  for i = 1, 3 do ahead[i] = math.max(0, (whole(fields[i]) or 0) - now) * interval / math.max(1, before) end
  return now + math.min(ahead[1], interval + slack + IN_HAND), now + ahead[2], now + ahead[3]
end
local paid, line, again = read_rate()

local function write_rate()
  local untill = math.min(math.max(paid, line, again), LATEST)
  local state = string.format('%.0f %.0f %.0f %.0f', math.min(paid, LATEST), math.min(line, LATEST),
    math.min(again, LATEST), interval)
  local lasts_ms = math.ceil((untill - now) / 1000) + 1
  redis.call('SET', rate, state, 'PX', lasts_ms)
end

local function delay_until(slot)
  redis.call('LREM', inflight, 1, text)
  count('running:' .. e.queue, -1)
  -- It was not started, whatever was about to be.
  e.kind, e.flag = 't', string.gsub(string.gsub(e.flag, 'b', ''), '^$', '-')
  local first = redis.call('ZRANGE', PREFIX .. 'delayed', 0, 0, 'WITHSCORES')
  redis.call('HSET', PREFIX .. 'tickets', e.id, ticket_text(e) .. ' ' .. digits_of(e.due))
  redis.call('ZADD', PREFIX .. 'delayed', to_score(slot), e.id)
  count('delayed:' .. e.queue, 1)
  if not first[1] or slot < from_score(first[2]) then ring_pollers() end
  ring_if_served(e.queue) -- under a cap there is room now
  if tell then tell('throttled', entry_text(e), owner, nil, 0, 'due_us', digits_of(slot)) end
  return { 'throttled', digits_of(slot) }
end

local is_back = e.kind == 't'
local slot = math.max(now, paid - slack, is_back and 0 or line - slack)
if latest and slot > latest then return { 'late', 0 } end
if slot - now <= IN_HAND then
  paid = math.max(paid, slot) + interval
  line = is_back and math.max(line, paid) or math.max(line, slot) + interval
  write_rate()
  return { 'start', math.ceil(slot - now) }
end
guard_places() -- before the first write of this branch
if is_back then
  slot = math.max(slot, again)
  again = slot + interval
  line = math.max(line, again + slack)
else
  line = math.max(line, slot) + interval
end
write_rate()
-- Its next entry is another text than this one, even if the clock has gone back meanwhile.
return delay_until(math.min(math.max(slot, e.ready + 1), LATEST))
