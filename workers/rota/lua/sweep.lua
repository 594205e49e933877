#!lua flags=allow-oom
-- Find work that no process has been notified of. Up to 8 pollers run this every 0.9 s. The script rings for entries
-- without a doorbell token, records the time of the sweep in `pulse`, and reports expired owners, the next due time,
-- and items that were pushed without the client. It also marks queues with entries as ready, forgets idle queues of
-- patterns, and counts running tasks again every 10 s.
-- with: prefix clock numbers entry lists doorbell recount leases unadopted idle closing sweepers
-- KEYS[1]  tasks
-- ARGV
--   lease         length of the poller's lease in milliseconds
--   name          name of this poller, '' for a poller that never scans the keys
--   forget_after  milliseconds after which an empty queue of a pattern is forgotten
-- keys     closed conditions counts dead delayed doorbell doorbell:* events-on former idle inflight:* members owners
--          patterns paused progress pulse queue:* queues rates ready rotation schedules-declared schedules-due served
--          shares tasks tickets times:* totals turns:* waiters
-- returns  thirteen values; times are in microseconds:
--     now, as Redis time
--     number of doorbells rung for entries that no worker had been woken for
--     time until which the grace period lasts
--     expired owners
--     next due time, or ''
--     0|1 whether this is the poller that scans for the fleet
--     number of delayed items that are not adopted
--     time at which a schedule has to be processed next, or ''
--     schedules that no node declares any longer
--     keys in which new work appears, empty if there are too many
--     0|1 whether none of these keys exists and there is nothing else to do
--     time before which no lease can expire, or ''
--     0|1 whether this poller is a reserve: enough others sweep, so this call has done nothing
-- Invariant: if no poller swept for half a lease, or the clock was set back, no owner is reported as expired for one
-- more lease (the longest in use), because in that time owners probably could not renew their leases either.
local QUEUES, OWNERS, UNDECLARED, RECOUNT, SCANS_FOR = 500, 100, 10, 10 * 1000000, 5 * 1000000
local SOON = 1000000 -- microseconds; longer than the interval between two sweeps
local MOST_WATCHED = 3 + 2 * 100 -- both lanes of a hundred queues
local now, lease, name, forget_after = redis_now(), tonumber(ARGV[1]) * 1000, ARGV[2], tonumber(ARGV[3]) * 1000
local pulse, owners = PREFIX .. 'pulse', PREFIX .. 'owners'
local known = redis.call('HMGET', pulse, 'at', 'grace_until', 'from', 'lease', 'lease_at', 'sweepers')
local last, grace, cursor = whole(known[1]), whole(known[2]) or 0, digits_of(whole(known[3]) or 0)
local asked_for, asked_at = lease_in_use(known[4], known[5], now)
local longest = math.max(lease, asked_for)
-- If a lease expires later than any lease could, its expiry was written before the clock was set back. Such expiries
-- are shortened below, because a dead owner would otherwise keep its tasks until then.
local far_ahead = redis.call('ZRANGEBYSCORE', owners, digits_of(now + 2 * longest), '+inf', 'LIMIT', 0, OWNERS)
redis.call('HLEN', PREFIX .. 'counts')
redis.call('SCARD', PREFIX .. 'ready')
if not takes_place(known[6], name, lease, now) then return { now, 0, grace, {}, '', 0, 0, '', {}, {}, 0, '', 1 } end
-- Most idle fleets have none of these keys, so check them with one command.
local delayed, due, declared = PREFIX .. 'delayed', PREFIX .. 'schedules-due', PREFIX .. 'schedules-declared'
local any_more = redis.call('EXISTS', CONDITIONS, PREFIX .. 'idle', delayed, due, declared) > 0
local watched, any_entries = { delayed, due, declared }, false

local function prolonged(until_us)
  if not last or now - last > lease / 2 or now < last then return now + longest end
  return math.min(until_us, now + longest)
end
grace = prolonged(grace)

-- Each sweep checks a window of at most 500 queues; the next sweep continues after it.
local rescues, examined = 0, 0
local any_conditions = any_more and redis.call('EXISTS', CONDITIONS) == 1
-- Whether a cap or a rate may keep the queue closed. If so, no script has to ring, because the worker that ends a task
-- of the queue, or that waits for the rate, checks again. Only workers know the cap, so this is a guess. The script
-- therefore rings anyway, but does not count this as a rescue.
local function may_be_full(queue)
  local running = redis.pcall('HGET', PREFIX .. 'counts', 'running:' .. queue)
  local empty_at = redis.pcall('HGET', PREFIX .. 'rates', queue)
  return (tonumber(running) or 0) > 0 or (tonumber(empty_at) or 0) > now
end
local function check(queue)
  examined = examined + 1
  watched[#watched + 1], watched[#watched + 2] = ready_lane(queue), delayed_lane(queue)
  if entries_in(queue) > 0 then
    any_entries = true
    redis.call('SADD', PREFIX .. 'ready', queue)
    -- A worker that finds the condition closed checks again later. If the entries were pushed without the client, no
    -- worker may have checked, so ring shortly before the condition opens.
    local closed = any_conditions and closed_by(queue, now)
    if not closed or closed ~= '' and decision_on(queue, closed, now).after < SOON then
      local rung = ring_if_served(queue)
      if rung > 0 and not closed and not may_be_full(queue) then rescues = rescues + rung end
    end
  end
  if any_more or any_patterns then check_idle(queue, now, forget_after) end
end
repeat
  local chunk = redis.call('SSCAN', PREFIX .. 'queues', cursor, 'COUNT', QUEUES - examined)
  cursor = chunk[1]
  for _, queue in ipairs(chunk[2]) do check(queue) end
until cursor == '0' or examined >= QUEUES
redis.call('HSET', pulse, 'at', digits_of(now), 'grace_until', digits_of(grace), 'from', cursor)
-- The clock was set back, so record the longest lease again with the present time. Otherwise that lease would stay in
-- use until the clock has caught up.
if asked_at > now and longest > lease then note_lease(longest, now) end

-- Count running tasks again every 10 s. Otherwise a wrong counter could keep a capped queue closed or open forever.
if not last or math.floor(now / RECOUNT) ~= math.floor(last / RECOUNT) then
  replace_counts('running:', running_by_queue())
  repair_rotation()
end

for _, owner in ipairs(far_ahead) do redis.call('ZADD', owners, digits_of(now + longest), owner) end
local expired = {}
if grace <= now then expired = redis.call('ZRANGEBYSCORE', owners, '-inf', digits_of(now), 'LIMIT', 0, OWNERS) end

-- One poller does the work that requires a scan of keys or lanes for the whole fleet.
local function is_scanner() return leads(name, 'walker', 'walks_until', SCANS_FOR, now) end

-- A key of the wrong type stops promotions, but not sweeps.
local first = any_more and redis.pcall('ZRANGE', delayed, 0, 0, 'WITHSCORES') or {}
local next_due = first[2] and digits_of(from_score(first[2])) or ''
-- If these keys have the wrong type, sweeps still continue. A declaration stays valid for one more lease after it has
-- expired, so that a node that declares another text under the same name can take over.
local schedule = any_more and redis.pcall('ZRANGE', due, 0, 0, 'WITHSCORES') or {}
local next_schedule = schedule[2] and whole(schedule[2]) and digits_of(whole(schedule[2])) or ''
local undeclared = {}
if any_more and grace <= now then
  undeclared = redis.pcall('ZRANGEBYSCORE', declared, '-inf', digits_of(now - longest), 'LIMIT', 0, UNDECLARED)
  if undeclared.err then undeclared = {} end
end

-- If everything is idle, pollers can watch these keys instead of sweeping. Expired leases change no key, so the reply
-- also has the time before which no lease can expire.
local saw_all = known[3] == '0' and cursor == '0' and #watched <= MOST_WATCHED
local is_quiet = saw_all and not (any_entries or any_more or any_patterns) and #expired == 0
local first_end = is_quiet and whole(redis.call('ZRANGE', owners, 0, 0, 'WITHSCORES')[2])
return {
  now, rescues, grace, expired, next_due, is_scanner(), any_more and unadopted_items() or 0, next_schedule, undeclared,
  saw_all and watched or {}, is_quiet and 1 or 0, first_end and digits_of(math.max(first_end, grace)) or '', 0,
}
