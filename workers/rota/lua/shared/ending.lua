-- How the life of a task goes on or ends. The caller has taken the entry from wherever it stood.
-- with: ends
local follow -- what follows, where there is any: see following.lua

-- Free the task's unique key, if the key is still its own (one held for a time may have passed to another).
local function free_unique_key(id, flag)
  if not string.find(flag, 'u', 1, true) then return end
  local key = redis.call('HGET', PREFIX .. 'keys', id)
  if not key then return end
  redis.call('HDEL', PREFIX .. 'keys', id)
  if redis.pcall('GET', PREFIX .. 'unique:' .. key) == id then redis.call('DEL', PREFIX .. 'unique:' .. key) end
end

-- The account of a run, as a line of the memory of ends. In a slot that a task wrote to anything may stand in its place: then
-- nobody told of the run.
local NO_RUN = ' 0 0 0 ' -- and the task's name, or '-': of a run that was not begun, or of which nobody told
local function account_line(account)
  local is_line = string.sub(account, 1, 1) == ' ' and not string.find(account, '\n', 1, true)
  return is_line and account or NO_RUN .. '-'
end

local function behind_account(past) return '\r' .. string.gsub(string.gsub(past, '\r', ' '), '\n', '\r') end

-- What a task that ends may leave elsewhere: its unique key, accounts of its attempts, the record of former lives.
-- Its flag says of each whether it is there, so one that has none costs a comparison. Returns what it left of its earlier
-- attempts, as it stands behind the account of its run.
local function clear_up(id, flag)
  if flag == '-' then return '' end
  local past = false
  free_unique_key(id, flag)
  if string.find(flag, '%u') then
    past = redis.pcall('HGET', PREFIX .. 'epitaphs', id)
    redis.pcall('HDEL', PREFIX .. 'epitaphs', id)
  end
  if string.find(flag, '%d') then numbered_life_ended(id) end
  return type(past) == 'string' and behind_account(past) or ''
end

-- The accounts of a task's attempts: a line each, latest last, and no more than ten.
local MOST_ACCOUNTS = 10
local function add_account(e, account)
  local line = string.gsub(account, '\n', ' ') -- of a slot that a task wrote to
  local before = string.find(e.flag, '%u') and redis.call('HGET', PREFIX .. 'epitaphs', e.id)
  if before then
    local _, breaks = string.gsub(before, '\n', '\n')
    if breaks + 1 >= MOST_ACCOUNTS then before = string.gsub(before, '^[^\n]*\n', '') end
    line = before .. '\n' .. line
  end
  redis.call('HSET', PREFIX .. 'epitaphs', e.id, line)
end

-- A task that goes on keeps the account of an attempt that failed, or was cut short. The mark, a capital letter, says how
-- its last crash or loss came about; `E` is that of a task which had none.
local function keep_account(e, mark, account)
  add_account(e, account)
  if mark ~= 'E' or not string.find(e.flag, '%u') then e.flag = string.gsub(e.flag, '[%u-]', '') .. mark end
end

local note_ends
do -- as Lua knows no more than 200 names of a script
  -- Remembering ends. What cannot be written stops no transition half way, so this never raises.
  local keep -- asked for when the first task of a call may have ended
  local function remembers()
    local KEEP, MOST_KEPT = 10000, 1000000 -- without a master's word; what a foreign hand may write
    keep = keep or tonumber(redis.pcall('HGET', PREFIX .. 'meta', 'ended_keep')) or KEEP
    return keep > 0 and keep <= MOST_KEPT
  end

  -- `known`: the number of all ends so far; what is no such number was overwritten, and counts anew. The oldest texts go when
  -- `keep` are known without them; and what a foreign hand put among their numbers.
  local function seal(known)
    local open, sealed = PREFIX .. ENDS, PREFIX .. SEALED
    if type(known) ~= 'number' or known > LATEST or type(redis.pcall('RPUSH', sealed, known)) ~= 'number' then
      redis.pcall('HDEL', PREFIX .. 'meta', 'ended')
      redis.call('UNLINK', open)
      return
    end
    redis.call('RENAME', open, open .. ':' .. string.format('%.0f', known))
    repeat
      local first = redis.call('LINDEX', sealed, 0)
      local number = tonumber(first or '')
      if not first or number and number <= known and known - number < keep then return end
      redis.call('UNLINK', open .. ':' .. first)
      redis.call('LPOP', sealed)
    until false
  end

  local function remember(how, now, owner, count, text)
    local LONG, SHORTEST = 32768, 16 -- bytes of a text that is sealed; a small memory has shorter ones, of so many an end
    local SHORT = 2048 -- a text that is put behind its head at little cost
    local open, head = PREFIX .. ENDS, string.format('\n!%d %s %.0f %s', count, how, now, owner)
    if #text > SHORT then redis.pcall('APPEND', open, head) else text = head .. text end
    local size = redis.pcall('APPEND', open, text)
    local known = redis.pcall('HINCRBY', PREFIX .. 'meta', 'ended', count)
    if type(size) == 'number' and size >= math.min(LONG, keep * SHORTEST) then seal(known) end
  end

  local function tell_nothing_of(ids, now)
    local LONG = 32768
    local untold, at = PREFIX .. UNTOLD, string.format(' %.0f', now)
    local size = redis.pcall('APPEND', untold, '\n' .. table.concat(ids, at .. '\n') .. at)
    if type(size) ~= 'number' or size < LONG then return end
    redis.call('SET', untold, string.match(redis.call('GETRANGE', untold, -LONG / 2, -1), '\n.*') or '')
  end

  -- Tasks have ended, all of them `how`: done, cancelled, expired, purged or dead. Whichever way they came, it is noted here,
  -- while their bodies are still there. `ended` has their `ids`; `lines`, of those that are to be remembered: a text of `count`
  -- of them as it came, or '', then entry, account, entry, account...; `untold`: ids of which nothing is to be told.
  note_ends = function(how, now, owner, ended)
    if tell_waiters then tell_waiters(how, ended.ids) end
    if follow then follow(how, now, ended.ids) end
    if how ~= 'done' then redis.call('UNLINK', PREFIX .. 'result:' .. ended.ids[1]) end -- one at a time, and of an earlier life
    if not remembers() then return end
    local lines, count = ended.lines, ended.count + (#ended.lines - 1) / 2
    if count > 0 then remember(how, now, owner, count, #lines > 1 and table.concat(lines, '\n') or lines[1]) end
    if #ended.untold > 0 then tell_nothing_of(ended.untold, now) end
  end
end

-- The same of one. `text`: its entry's, or of a dead task its id and ticket; `account`: of its run and of earlier attempts, ''
-- when it is not to be remembered.
local function note_end(how, now, owner, id, text, account)
  if tell and how ~= 'dead' then tell_end(how, text, owner, account) end
  local is_told = account ~= ''
  local lines, untold = is_told and { '', text, account } or { '' }, is_told and {} or { id }
  note_ends(how, now, owner, { ids = { id }, lines = lines, count = 0, untold = untold })
end

-- Take a task off the books whose end was noted before; returns as clear_up.
local function take_off(id, flag, how)
  total(how, redis.call('HDEL', PREFIX .. 'tasks', id))
  return clear_up(id, flag)
end

local function end_task(e, how, now, owner, account)
  local past = clear_up(e.id, e.flag)
  note_end(how, now, owner, e.id, e.text, account == '' and '' or account_line(account) .. past)
  total(how, redis.call('HDEL', PREFIX .. 'tasks', e.id))
end

-- Set aside for people. A dead task frees its unique key: whoever enqueues next should not wait for a human. `dead` and
-- `epitaphs` are what remembers it.
local function bury(e, epitaph, now, owner)
  free_unique_key(e.id, e.flag)
  add_account(e, epitaph)
  e.flag = string.match(e.flag, '%d+') or '-'
  local ticket = ticket_text(e)
  redis.call('HSET', PREFIX .. 'tickets', e.id, ticket)
  redis.call('ZADD', PREFIX .. 'dead', to_score(now), e.id)
  count('dead:' .. e.queue, 1)
  if tell then tell('dead', e.id .. ' ' .. ticket, owner, nil, 0, 'reason', reason_in(epitaph)) end
  note_end('dead', now, '-', e.id, e.id .. ' ' .. ticket, '')
end

local function delay(e, due)
  due = math.min(due, LATEST)
  local first = redis.call('ZRANGE', PREFIX .. 'delayed', 0, 0, 'WITHSCORES')
  redis.call('HSET', PREFIX .. 'tickets', e.id, ticket_text(e) .. (e.front and ' ^' or ''))
  redis.call('ZADD', PREFIX .. 'delayed', to_score(due), e.id)
  count('delayed:' .. e.queue, 1)
  if not first[1] or due < from_score(first[2]) then ring_pollers() end
end

-- Somebody put another thing where a lane should be. The task is set aside rather than left in the way of others.
local UNUSABLE = '{"reason":"unusable_lane","error":"a key in the place of the lane of this queue is not a list: delete '
  .. 'that key, then revive this task"}'
local function is_list(lane) return type(redis.pcall('LLEN', lane)) == 'number' end

local BEGUN = '{"reason":"at_most_once","error":"it may have been started, and its worker was gone before it said so"}'

-- Back to the head of its lane; returns false when it had to be set aside, as what has begun. The caller grew one of the
-- counters, so the text is new.
local function give_back(e, now)
  local lane = lane_of(e.queue, e.kind)
  local has_begun = string.find(e.flag, 'b', 1, true)
  if has_begun or not is_list(lane) then
    bury(e, has_begun and BEGUN or UNUSABLE, now)
    return false
  end
  redis.call('LPUSH', lane, entry_text(e))
  redis.call('SADD', PREFIX .. 'ready', e.queue)
  return true
end
