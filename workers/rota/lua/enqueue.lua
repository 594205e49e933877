#!lua
-- Accept tasks. A server that is out of memory refuses this script, so that producers slow down first.
-- Most other scripts have the flag `allow-oom`, so they continue.
-- with: prefix clock legacy_item in_use_at_enqueue task_events marks sent
-- KEYS[1]  tasks
-- ARGV
--   nonce                 name and number of the call, see shared/sent.lua; if a call within the last 60 s had this
--                         nonce, nothing is changed, and the results of that call are returned
--   id, queue, how, body  task; up to 500 x
--       how: '' for a task that is due now and has no unique key, otherwise `DUE HOLD KEY`
--         DUE   '' for now, '+us' after that many microseconds, '@us' at that Unix time in microseconds; then '^' to
--               put the task at the head of its lane (the last such task of a call comes first)
--         HOLD  milliseconds for which the task holds its unique key, 0 for as long as it lives
--         KEY   the unique key, or ''
-- keys     counts delayed doorbell doorbell:* epitaphs events events-on former idle inflight:* keys meta owners
--          patterns queue:* queues ready sent:* served tasks tickets times:* totals turns:* unique:*
-- errors   ROTA… if there are more than 500 tasks, if a task does not have four arguments, or if a name is not valid;
--          nothing was changed
-- returns  a result for each task:
--   ok         accepted
--   unserved   accepted, but at the moment only other queues are served
--   unseen     accepted, but no fleet has ever run in this namespace
--   duplicate  the id belongs to a live task, or to a cancelled task that may still run
--   held ID    the live task ID holds the unique key
-- The id of a task that was cancelled while it waited can be used again. The old entry stays in its lane as a tombstone
-- (see shared/incarnations.lua), and the new task has its own entry.
-- Invariant: an accepted id is in `tasks` and in exactly one lane, list or set. Applications wait for this script,
-- mostly with one task per call. So the script avoids functions and tables, each of which costs a tenth to a quarter of
-- a redis.call. Nor does it include a shared file for a single line.
local FIELDS, MOST = 4, 500
if #ARGV > 1 + MOST * FIELDS then return redis.error_reply('ROTA at most 500 tasks a call') end
if (#ARGV - 1) % FIELDS > 0 then return redis.error_reply('ROTA four arguments for each task') end
local TASKS, SERVED, DELAYED = KEYS[1], PREFIX .. 'served', PREFIX .. 'delayed'
local call, try = redis.call, redis.pcall
local now = redis_now()
local stamp = string.format('%d%06d', now / 1000000, now % 1000000) -- takes a third of the time of %.0f
local lives, running

-- Return the result for an accepted task. If no fleet is running now, but one has run before, the result is `ok`.
local function accepted_status(queue)
  local until_us = call('HGET', SERVED, queue)
  if until_us and (tonumber(until_us) or 0) > now or any_patterns and servings_of(queue)[1] then return 'ok' end
  local known = call('HVALS', SERVED)
  for _, other in ipairs(known) do
    if (tonumber(other) or 0) > now then return 'unserved' end
  end
  return #known == 0 and call('EXISTS', PREFIX .. 'meta') == 0 and 'unseen' or 'ok'
end

-- Check every item before the first write. A key of the wrong type raises an error here.
call('HLEN', PREFIX .. 'totals')
local statuses, queues, accepted, bodies = {}, {}, {}, {}
local tickets, scores, first_due = {}, {}, math.huge
local holds, holders
local events = report and {} -- arguments of `report`, for each task
-- For each id: false if it is new, '' if its task was cancelled, and another text if its task is alive. One HMGET is
-- faster than a HEXISTS for each id, which would take a tenth of a full call. But HMGET also reads the bodies, and the
-- Redis user of a producer may lack the permission for that: see docs/security.md. If the server has no
-- `acl_check_cmd`, assume that the user has this permission.
local ids, live = {}, {}
for at = 2, #ARGV, FIELDS do ids[#ids + 1] = ARGV[at] end
local permits = redis.acl_check_cmd
if #ids > 1 and (not permits or permits('HMGET', TASKS, '')) then
  live = call('HMGET', TASKS, unpack(ids))
else
  for i, id in ipairs(ids) do
    live[i] = call('HEXISTS', TASKS, id) == 1 and (call('HSTRLEN', TASKS, id) == 0 and '' or 'alive')
  end
end

for at = 2, #ARGV, FIELDS do
  local id, queue, how, body, due, key = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], '', ''
  if how ~= '' then due, key = string.match(how, '^(%S*) %d+ (.*)$') end
  local lane = queues[queue] -- the record of the queue, with its new entries
  if not name_or_nil(id) or not (lane or queue_or_nil(queue)) then
    return redis.error_reply('ROTA not a name: ' .. string.sub(id .. ' in ' .. queue, 1, 200))
  end
  if not lane then
    call('LLEN', ready_lane(queue))
    lane = {
      queue = queue, accepted = 0, status = accepted_status(queue), at_once = 0,
      listed = call('SISMEMBER', PREFIX .. 'queues', queue), ready = call('SISMEMBER', PREFIX .. 'ready', queue),
      after_id = ' ' .. queue .. ' i ' .. stamp .. ' ' .. stamp .. ' 0 0 0 0 ', -- text of an entry between id and flag
    }
    queues[queue] = lane
    queues[#queues + 1] = lane
  end

  local status, follows = lane.status, live[#statuses + 1]
  if follows == '' then
    -- The earlier task with this id was cancelled. The id is taken while that task runs. If there are more owners than
    -- `cancel` searches, or if the user may not read the lists of the owners, assume that the task runs.
    if not running then
      local may_read = not permits or permits('LRANGE', PREFIX .. 'inflight:', '0', '-1')
      running = { unknown = not may_read or call('ZCARD', PREFIX .. 'owners') > 500 }
      for _, owner in ipairs(running.unknown and {} or call('ZRANGE', PREFIX .. 'owners', 0, 499)) do
        local lines = try('LRANGE', PREFIX .. 'inflight:' .. owner, 0, -1)
        for _, line in ipairs(lines.err and {} or lines) do running[string.match(line, '^%S+') or ''] = true end
      end
    end
    if running.unknown or running[id] then status = 'duplicate' end
  end
  if accepted[id] or follows and follows ~= '' or status == 'duplicate' then
    status = 'duplicate'
  elseif key ~= '' then
    if not holders then
      call('HLEN', PREFIX .. 'keys')
      holders, holds = {}, {}
    end
    local holder = holders[key] or call('GET', PREFIX .. 'unique:' .. key)
    if holder and (accepted[holder] or call('HEXISTS', TASKS, holder) == 1) then status = 'held ' .. holder end
  end
  statuses[#statuses + 1] = status

  if status == lane.status then
    local flag, due_at, is_front = '-', now, false
    accepted[id] = true
    lane.accepted = lane.accepted + 1
    bodies[#bodies + 1] = id
    bodies[#bodies + 1] = body
    if key ~= '' then
      flag = 'u'
      holders[key] = id
      holds[#holds + 1] = at
    end
    if due ~= '' then
      local sign, digits, head = string.match(due, '^([+@]?)(%d*)(%^?)$')
      is_front = head == '^'
      if sign and sign ~= '' and digits ~= '' then
        due_at = math.min(tonumber(digits) + (sign == '+' and now or 0), LATEST)
      end
    end
    if follows or any_incarnations then
      local text = any_incarnations and call('HGET', FORMER, id) or ''
      local number, tombstones = string.match(#text < 24 and text or '', '^(%d+) (%d+)$')
      if number or follows then
        number = string.format('%.0f', (tonumber(number or '') or 0) + 1)
        tombstones = string.format('%.0f', (tonumber(tombstones or '') or 0) + (follows and 1 or 0))
        lives = lives or {}
        lives[id] = { text = number .. ' ' .. tombstones, follows = follows }
        flag = (flag == 'u' and 'u' or '') .. number
      end
    end
    if due_at > now then
      first_due = math.min(first_due, due_at)
      tickets[#tickets + 1] = id
      tickets[#tickets + 1] = queue .. ' d 0 0 0 0 ' .. flag .. (is_front and ' ^' or '')
      scores[#scores + 1] = to_score(due_at)
      scores[#scores + 1] = id
      if report then
        local due_us = string.format('%.0f', due_at)
        local text, task = id .. lane.after_id .. flag, task_name_in(body)
        events[#events + 1] = { 'scheduled', text, false, task, 0, 'due_us', due_us }
      end
    else
      local text, into = id .. lane.after_id .. flag, lane
      if is_front then
        lane.fronts = lane.fronts or {}
        into = lane.fronts
      end
      into[#into + 1] = text
      lane.at_once = lane.at_once + 1
      if report then events[#events + 1] = { 'enqueued', text, false, task_name_in(body) } end
    end
  end
end
if lives then call('HLEN', PREFIX .. 'epitaphs') end
local is_first
if #tickets > 0 then
  call('HLEN', PREFIX .. 'tickets')
  call('HLEN', PREFIX .. 'counts')
  is_first = call('ZCOUNT', DELAYED, '-inf', to_score(first_due)) == 0
end

-- The first write also reads the record of the nonce. If the record exists, the stored results are returned.
local nonce = ARGV[1]
local sent = sent_key(nonce)
local stored = call('SET', sent, nonce .. '\n' .. table.concat(statuses, '\n'), 'GET', 'PX', SENT_MS)
if is_reply_to(nonce, stored) then
  -- Write again, so that a WAIT after this call also covers the first call, even if the first call used another
  -- connection.
  call('SET', sent, stored, 'PX', SENT_MS)
  statuses = {}
  for status in string.gmatch(string.sub(stored, #nonce + 2), '[^\n]+') do statuses[#statuses + 1] = status end
  return statuses
end

-- As in the shared files, a broken doorbell or counter must not stop a script after its first write.
local function ring(bell)
  if try('LLEN', bell) == 0 then call('RPUSH', bell, '1') end
end

for id, incarnation in pairs(lives or {}) do
  call('HSET', FORMER, id, incarnation.text)
  if incarnation.follows then
    try('HINCRBY', PREFIX .. 'totals', 'cancelled', 1) -- the claim that finds the tombstone does not count it
    call('HDEL', PREFIX .. 'epitaphs', id)
  end
end
if #bodies > 0 then call('HSET', TASKS, unpack(bodies)) end
for _, at in ipairs(holds or {}) do
  local id, ms, key = ARGV[at], string.match(ARGV[at + 2], ' (%d+) (.*)$')
  ms = tonumber(ms)
  call('HSET', PREFIX .. 'keys', id, key)
  if ms > 0 then
    call('SET', PREFIX .. 'unique:' .. key, id, 'PX', math.min(ms, LATEST))
  else
    call('SET', PREFIX .. 'unique:' .. key, id)
  end
end
if #tickets > 0 then
  call('HSET', PREFIX .. 'tickets', unpack(tickets))
  call('ZADD', DELAYED, unpack(scores))
  if is_first then ring(PREFIX .. 'doorbell') end
end
for _, lane in ipairs(queues) do
  local queue = lane.queue
  if lane.accepted > 0 then
    if lane.listed == 0 then call('SADD', PREFIX .. 'queues', queue) end
    try('HINCRBY', PREFIX .. 'totals', 'accepted:' .. queue, lane.accepted)
  end
  local delayed = lane.accepted - lane.at_once
  if delayed > 0 then try('HINCRBY', PREFIX .. 'counts', 'delayed:' .. queue, delayed) end
  if lane.at_once > 0 then
    if #lane > 0 then call('RPUSH', ready_lane(queue), unpack(lane)) end
    if lane.fronts then call('LPUSH', ready_lane(queue), unpack(lane.fronts)) end
    if lane.ready == 0 then call('SADD', PREFIX .. 'ready', queue) end
    if any_patterns then
      if lane.ready == 0 then mark(queue) end
      for _, name in ipairs(bell_names(queue)) do ring(PREFIX .. 'doorbell:' .. name) end
    else
      ring(PREFIX .. 'doorbell:' .. queue)
    end
  end
end
if report then
  for _, new in ipairs(events) do report(unpack(new)) end
end
return statuses
