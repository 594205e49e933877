#!lua flags=allow-oom
-- The pollers' round each 0.9 s: rescue entries for which nobody rang, keep the pulse, name owners whose lease ran out,
-- tell what is due next and how much nobody knows of: a bare ZADD rings nobody.
-- with: prefix clock numbers entry lists doorbell recount leases untold idle condition shares closing
-- KEYS[1]  tasks
-- ARGV
--   lease         ms
--   name          of this poller, '' for one that never walks
--   forget_after  ms until an empty queue of a pattern is forgotten
-- keys     closed conditions counts dead delayed doorbell doorbell:* events-on former idle inflight:* members owners
--          patterns paused progress pulse queue:* queues rates ready rotation schedules-declared schedules-due served
--          shares tasks tickets times:* totals turns:* waiters
-- returns  now, doorbells rung for unheard entries, until when grace lasts, expired owners, next due us or '',
--          whether it is the one poller of the fleet that walks 0|1, how many delayed items nobody adopted,
--          when a schedule is next to be looked at in us or '', schedules that no node declares any more, the keys in
--          which new work appears (empty if there are too many), whether none of them exists and there is nothing else
--          to do 0|1, and the time in us until which no lease can expire or ''
-- Invariant: when nobody swept for half a lease, or the clock went back, nobody is named expired for one lease more,
-- the longest in use: those who hold leases could not renew them either.
local QUEUES, OWNERS, UNDECLARED, RECOUNT, WALK = 500, 100, 10, 10 * 1000000, 5 * 1000000
local SOON = 1000000 -- us; each round of the pollers falls into it
local MOST_WATCHED = 3 + 2 * 100 -- both lanes of a hundred queues
local now, lease, name, forget_after = redis_now(), tonumber(ARGV[1]) * 1000, ARGV[2], tonumber(ARGV[3]) * 1000
local pulse, owners = PREFIX .. 'pulse', PREFIX .. 'owners'
local known = redis.call('HMGET', pulse, 'at', 'grace_until', 'from', 'lease', 'lease_at')
local last, grace, cursor = whole(known[1]), whole(known[2]) or 0, digits_of(whole(known[3]) or 0)
local asked_for, asked_at = lease_in_use(known[4], known[5], now)
local longest = math.max(lease, asked_for)
-- A lease far ahead was written before the clock went back; it would keep a dead owner's tasks for that long.
local far_ahead = redis.call('ZRANGEBYSCORE', owners, digits_of(now + 2 * longest), '+inf', 'LIMIT', 0, OWNERS)
redis.call('HLEN', PREFIX .. 'counts')
redis.call('SCARD', PREFIX .. 'ready')
-- Of these most fleets at rest have none: one look says so.
local delayed, due, declared = PREFIX .. 'delayed', PREFIX .. 'schedules-due', PREFIX .. 'schedules-declared'
local any_more = redis.call('EXISTS', CONDITIONS, PREFIX .. 'idle', delayed, due, declared) > 0
local watched, any_entries = { delayed, due, declared }, false

local function prolonged(untill)
  if not last or now - last > lease / 2 or now < last then return now + longest end
  return math.min(untill, now + longest)
end
grace = prolonged(grace)

-- A bounded window over the queues, moving on each 0.9 s when there are more than it holds.
local rescues, looked_at = 0, 0
local any_conditions = any_more and redis.call('EXISTS', CONDITIONS) == 1
-- Whether its cap or its rate may be what keeps a queue shut: then nobody rings, as whoever ends a task of it, or waits
-- for the rate, looks again. What its cap is workers alone know. It is rung all the same, and no rescue.
local function may_be_full(queue)
  local running = redis.pcall('HGET', PREFIX .. 'counts', 'running:' .. queue)
  local empty_at = redis.pcall('HGET', PREFIX .. 'rates', queue)
  return (tonumber(running) or 0) > 0 or (tonumber(empty_at) or 0) > now
end
local function look_at(queue)
  looked_at = looked_at + 1
  watched[#watched + 1], watched[#watched + 2] = ready_lane(queue), delayed_lane(queue)
  if entries_in(queue) > 0 then
    any_entries = true
    redis.call('SADD', PREFIX .. 'ready', queue)
    -- Whoever finds a condition closed looks again by itself. Nobody found it for a bare push: the bell rings before it
    -- opens.
    local closed = any_conditions and closed_by(queue, now)
    if not closed or closed ~= '' and verdict_on(queue, closed, now).after < SOON then
      local rung = ring_if_served(queue)
      if rung > 0 and not closed and not may_be_full(queue) then rescues = rescues + rung end
    end
  end
  if any_more or any_patterns then look_whether_idle(queue, now, forget_after) end
end
repeat
  local portion = redis.call('SSCAN', PREFIX .. 'queues', cursor, 'COUNT', QUEUES - looked_at)
  cursor = portion[1]
  for _, queue in ipairs(portion[2]) do look_at(queue) end
until cursor == '0' or looked_at >= QUEUES
redis.call('HSET', pulse, 'at', digits_of(now), 'grace_until', digits_of(grace), 'from', cursor)
-- The clock went back: the longest lease counts as asked for now, not for as long as the clock takes to catch up.
if asked_at > now and longest > lease then note_lease(longest, now) end

-- What runs is counted anew now and then, as a count that drifted would hold a capped queue shut, or open, for ever.
if not last or math.floor(now / RECOUNT) ~= math.floor(last / RECOUNT) then
  replace_counts('running:', running_by_queue())
  set_rotation_right()
end

for _, owner in ipairs(far_ahead) do redis.call('ZADD', owners, digits_of(now + longest), owner) end
local expired = {}
if grace <= now then expired = redis.call('ZRANGEBYSCORE', owners, '-inf', digits_of(now), 'LIMIT', 0, OWNERS) end

-- What takes a walk through keys or lanes is done by one poller for all.
local function walks() return has_duty(name, 'walker', 'walks_until', WALK, now) end

-- Of another type it stops promotions, and no sweep.
local first = any_more and redis.pcall('ZRANGE', delayed, 0, 0, 'WITHSCORES') or {}
local next_due = first[2] and digits_of(from_score(first[2])) or ''
-- Nor does one of these stop a sweep. What a node declares counts for as long again as its word held: who declares
-- something else under that name takes over before that.
local schedule = any_more and redis.pcall('ZRANGE', due, 0, 0, 'WITHSCORES') or {}
local first_look = schedule[2] and whole(schedule[2]) and digits_of(whole(schedule[2])) or ''
local undeclared = {}
if any_more and grace <= now then
  undeclared = redis.pcall('ZRANGEBYSCORE', declared, '-inf', digits_of(now - longest), 'LIMIT', 0, UNDECLARED)
  if undeclared.err then undeclared = {} end
end

-- While it stays so, a look at the keys takes the place of a sweep; but a lease runs out without a key.
local saw_all = known[3] == '0' and cursor == '0' and #watched <= MOST_WATCHED
local is_quiet = saw_all and not (any_entries or any_more or any_patterns) and #expired == 0
local first_end = is_quiet and whole(redis.call('ZRANGE', owners, 0, 0, 'WITHSCORES')[2])
return {
  now, rescues, grace, expired, next_due, walks(), any_more and untold() or 0, first_look, undeclared,
  saw_all and watched or {}, is_quiet and 1 or 0, first_end and digits_of(math.max(first_end, grace)) or '',
}
