#!lua
-- Accept tasks. The only transition besides revive that a full server refuses (no allow-oom), so that it is
-- producers who are pushed back.
-- with: prefix clock bare in_use_at_enqueue news marks sent
-- KEYS[1]  tasks
-- ARGV
--   nonce             see shared/sent.lua
--   id, queue, how, body  up to 500 x
--       how: '' for at once and nothing else, or `DUE HOLD KEY`: due ('' | '+us' | '@unix us'; behind it '^' for the
--       head of its lane, where the last one of a call stands first), for how many ms it holds its unique key, and
--       that key or ''
-- keys     counts delayed doorbell doorbell:* epitaphs events events-on former idle inflight:* keys meta owners
--          patterns queue:* queues ready sent:* served tasks tickets times:* totals turns:* unique:*
-- errors   ROTA… when there are too many, or not four arguments for each, or a name is none: nothing was done
-- returns  a word each: ok | unserved (accepted, no live master serves the queue) | unseen (accepted, and there was
--          never a fleet in this namespace) | duplicate | held ID
--          A task that was cancelled while it waited is no duplicate: its entry stays in its lane as a shell (see
--          shared/former.lua), and the new one has a life of its own.
-- Invariant: an accepted id is in `tasks` and in exactly one place; a nonce seen within 60 s changes nothing.
-- Applications wait for this script, mostly with one task: it makes few functions and tables, each a tenth to a quarter
-- of a redis.call, and brings no shared file of which it would need one line.
local FIELDS, MOST = 4, 500
if #ARGV > 1 + MOST * FIELDS then return redis.error_reply('ROTA at most 500 tasks a call') end
if (#ARGV - 1) % FIELDS > 0 then return redis.error_reply('ROTA four arguments for each task') end
local TASKS, SERVED, DELAYED = KEYS[1], PREFIX .. 'served', PREFIX .. 'delayed'
local call, try = redis.call, redis.pcall
local now = redis_now()
local stamp = string.format('%d%06d', now / 1000000, now % 1000000) -- a third of the time that %.0f takes
local lives, running

-- The word for a task that is accepted. Nobody is told of a fleet that is only away.
local function accepted_word(queue)
  local untill = call('HGET', SERVED, queue)
  if untill and (tonumber(untill) or 0) > now or any_patterns and servings_of(queue)[1] then return 'ok' end
  local known = call('HVALS', SERVED)
  for _, other in ipairs(known) do
    if (tonumber(other) or 0) > now then return 'unserved' end
  end
  return #known == 0 and call('EXISTS', PREFIX .. 'meta') == 0 and 'unseen' or 'ok'
end

-- Judge every item before anything is written; a key of another type raises here.
call('HLEN', PREFIX .. 'totals')
local words, queues, accepted, bodies = {}, {}, {}, {}
local tickets, scores, first_due = {}, {}, math.huge
local holds, holders
local news = tell and {} -- what `tell` takes, of each
-- All at once: a HEXISTS each would be a tenth of a full call. Nearly every id is new, and brings no body along.
local ids = {}
for at = 2, #ARGV, FIELDS do ids[#ids + 1] = ARGV[at] end
local live = #ids > 0 and call('HMGET', TASKS, unpack(ids)) or {}

for at = 2, #ARGV, FIELDS do
  local id, queue, how, body, due, key = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], '', ''
  if how ~= '' then due, key = string.match(how, '^(%S*) %d+ (.*)$') end
  local lane = queues[queue] -- its new entries, and what is known of it
  if not name_or_nil(id) or not (lane or queue_or_nil(queue)) then
    return redis.error_reply('ROTA not a name: ' .. string.sub(id .. ' in ' .. queue, 1, 200))
  end
  if not lane then
    call('LLEN', ready_lane(queue))
    lane = {
      queue = queue, accepted = 0, word = accepted_word(queue), at_once = 0,
      listed = call('SISMEMBER', PREFIX .. 'queues', queue), ready = call('SISMEMBER', PREFIX .. 'ready', queue),
      after_id = ' ' .. queue .. ' i ' .. stamp .. ' ' .. stamp .. ' 0 0 0 0 ', -- an entry's text up to its flag
    }
    queues[queue] = lane
    queues[#queues + 1] = lane
  end

  local word, follows = lane.word, live[#words + 1]
  if follows == '' then
    -- Cancelled. While it runs its id is taken; so it is where there are more owners than `cancel` looks at.
    if not running then
      running = { too_many = call('ZCARD', PREFIX .. 'owners') > 500 }
      for _, owner in ipairs(call('ZRANGE', PREFIX .. 'owners', 0, 499)) do
        local lines = try('LRANGE', PREFIX .. 'inflight:' .. owner, 0, -1)
        for _, line in ipairs(lines.err and {} or lines) do running[string.match(line, '^%S+') or ''] = true end
      end
    end
    if running.too_many or running[id] then word = 'duplicate' end
  end
  if accepted[id] or follows and follows ~= '' or word == 'duplicate' then
    word = 'duplicate'
  elseif key ~= '' then
    if not holders then
      call('HLEN', PREFIX .. 'keys')
      holders, holds = {}, {}
    end
    local holder = holders[key] or call('GET', PREFIX .. 'unique:' .. key)
    if holder and (accepted[holder] or call('HEXISTS', TASKS, holder) == 1) then word = 'held ' .. holder end
  end
  words[#words + 1] = word

  if word == lane.word then
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
    if follows or any_former then
      local text = any_former and call('HGET', FORMER, id) or ''
      local number, shells = string.match(#text < 24 and text or '', '^(%d+) (%d+)$')
      if number or follows then
        number = string.format('%.0f', (tonumber(number or '') or 0) + 1)
        shells = string.format('%.0f', (tonumber(shells or '') or 0) + (follows and 1 or 0))
        lives = lives or {}
        lives[id] = { text = number .. ' ' .. shells, follows = follows }
        flag = (flag == 'u' and 'u' or '') .. number
      end
    end
    if due_at > now then
      first_due = math.min(first_due, due_at)
      tickets[#tickets + 1] = id
      tickets[#tickets + 1] = queue .. ' d 0 0 0 0 ' .. flag .. (is_front and ' ^' or '')
      scores[#scores + 1] = to_score(due_at)
      scores[#scores + 1] = id
      if tell then
        local due_us = string.format('%.0f', due_at)
        local text, task = id .. lane.after_id .. flag, task_in(body)
        news[#news + 1] = { 'scheduled', text, false, task, 0, 'due_us', due_us }
      end
    else
      local text, into = id .. lane.after_id .. flag, lane
      if is_front then
        lane.fronts = lane.fronts or {}
        into = lane.fronts
      end
      into[#into + 1] = text
      lane.at_once = lane.at_once + 1
      if tell then news[#news + 1] = { 'enqueued', text, false, task_in(body) } end
    end
  end
end
if lives then call('HLEN', PREFIX .. 'epitaphs') end
local waiting_for = math.huge
if #tickets > 0 then
  call('HLEN', PREFIX .. 'tickets')
  call('HLEN', PREFIX .. 'counts')
  local first = call('ZRANGE', DELAYED, 0, 0, 'WITHSCORES')
  if first[1] then waiting_for = from_score(first[2]) end
end

-- The first write also tells whether the nonce is known: then the answer is the one given before, and stays.
local nonce = ARGV[1]
local sent = sent_key(nonce)
local told = call('SET', sent, nonce .. '\n' .. table.concat(words, '\n'), 'GET', 'PX', SENT_MS)
if is_answer(nonce, told) then
  -- A write, so that a WAIT behind this answer covers the first call too, on whatever connection that came.
  call('SET', sent, told, 'PX', SENT_MS)
  words = {}
  for word in string.gmatch(string.sub(told, #nonce + 2), '[^\n]+') do words[#words + 1] = word end
  return words
end

-- As in the shared files: neither a bell nor the books may stop a transition half way.
local function ring(bell)
  if try('LLEN', bell) == 0 then call('RPUSH', bell, '1') end
end

for id, life in pairs(lives or {}) do
  call('HSET', FORMER, id, life.text)
  if life.follows then
    try('HINCRBY', PREFIX .. 'totals', 'cancelled', 1) -- the claim that comes upon its shell will not count it
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
  if first_due < waiting_for then ring(PREFIX .. 'doorbell') end
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
      for _, name in ipairs(names_heard(queue)) do ring(PREFIX .. 'doorbell:' .. name) end
    else
      ring(PREFIX .. 'doorbell:' .. queue)
    end
  end
end
if tell then
  for _, new in ipairs(news) do tell(unpack(new)) end
end
return words
