-- What the end of a task leaves and clears up, however it ended. The caller has taken the entry from wherever it stood.
-- with: ends
-- keys     epitaphs keys meta result:* tasks unique:*
local follow -- what follows, where there is any: see following.lua

-- Free the task's unique key, if the key is still its own (one held for a time may have passed to another).
local function free_unique_key(id, flag)
  if not string.find(flag, 'u', 1, true) then return end
  local key = redis.call('HGET', PREFIX .. 'keys', id)
  if not key then return end
  redis.call('HDEL', PREFIX .. 'keys', id)
  if redis.pcall('GET', PREFIX .. 'unique:' .. key) == id then redis.call('DEL', PREFIX .. 'unique:' .. key) end
end

-- The account of a run, as a line of the memory of ends. In a slot that a task wrote to anything may stand in its
-- place: then nobody told of the run.
local NO_RUN = ' 0 0 0 ' -- and the task's name, or '-': of a run that was not begun, or of which nobody told
local function account_line(account)
  local is_line = string.sub(account, 1, 1) == ' ' and not string.find(account, '\n', 1, true)
  return is_line and account or NO_RUN .. '-'
end

local function behind_account(past) return '\r' .. string.gsub(string.gsub(past, '\r', ' '), '\n', '\r') end

-- What a task that ends may leave elsewhere: its unique key, accounts of its attempts, the record of former lives.
-- Its flag says of each whether it is there, so one that has none costs a comparison. Returns what it left of its
-- earlier attempts, as it stands behind the account of its run.
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

local note_ends
do -- as Lua knows no more than 200 names of a script
  -- Remembering ends. What cannot be written stops no transition half way, so this never raises.
  local keep -- asked for when the first task of a call may have ended
  local function remembers()
    local KEEP, MOST_KEPT = 10000, 1000000 -- without a master's word; what a foreign hand may write
    keep = keep or tonumber(redis.pcall('HGET', PREFIX .. 'meta', 'ended_keep')) or KEEP
    return keep > 0 and keep <= MOST_KEPT
  end

  -- `known`: the number of all ends so far; what is no such number was overwritten, and counts anew. The oldest texts
  -- go when `keep` are known without them; and what a foreign hand put among their numbers.
  local function seal(known)
    if type(known) ~= 'number' or known > LATEST or type(redis.pcall('RPUSH', SEALED, known)) ~= 'number' then
      redis.pcall('HDEL', PREFIX .. 'meta', 'ended')
      redis.call('UNLINK', ENDS)
      return
    end
    redis.call('RENAME', ENDS, sealed_key(string.format('%.0f', known)))
    repeat
      local first = redis.call('LINDEX', SEALED, 0)
      local number = tonumber(first or '')
      if not first or number and number <= known and known - number < keep then return end
      redis.call('UNLINK', sealed_key(first))
      redis.call('LPOP', SEALED)
    until false
  end

  local function remember(how, now, owner, count, text)
    -- Bytes of a text that is sealed; a small memory has shorter ones, of so many an end.
    local LONG, SHORTEST = 32768, 16
    local SHORT = 2048 -- a text that is put behind its head at little cost
    local head = string.format('\n!%d %s %.0f %s', count, how, now, owner)
    if #text > SHORT then redis.pcall('APPEND', ENDS, head) else text = head .. text end
    local size = redis.pcall('APPEND', ENDS, text)
    local known = redis.pcall('HINCRBY', PREFIX .. 'meta', 'ended', count)
    if type(size) == 'number' and size >= math.min(LONG, keep * SHORTEST) then seal(known) end
  end

  local function tell_nothing_of(ids, now)
    local LONG = 32768
    local at = string.format(' %.0f', now)
    local size = redis.pcall('APPEND', UNTOLD, '\n' .. table.concat(ids, at .. '\n') .. at)
    if type(size) ~= 'number' or size < LONG then return end
    redis.call('SET', UNTOLD, string.match(redis.call('GETRANGE', UNTOLD, -LONG / 2, -1), '\n.*') or '')
  end

  -- Tasks have ended, all of them `how`: done, cancelled, expired, purged or dead. Whichever way they came, it is noted
  -- here, while their bodies are still there. `ended` has their `ids`; `lines`, of those that are to be remembered: a
  -- text of `count` of them as it came, or '', then entry, account, entry, account...; `untold`: ids of which nothing
  -- is to be told.
  note_ends = function(how, now, owner, ended)
    if tell_waiters then tell_waiters(how, ended.ids) end
    if follow then follow(how, now, ended.ids) end
    -- These come one at a time; a result is that of an earlier life.
    if how ~= 'done' then redis.call('UNLINK', PREFIX .. 'result:' .. ended.ids[1]) end
    if not remembers() then return end
    local lines, count = ended.lines, ended.count + (#ended.lines - 1) / 2
    if count > 0 then remember(how, now, owner, count, #lines > 1 and table.concat(lines, '\n') or lines[1]) end
    if #ended.untold > 0 then tell_nothing_of(ended.untold, now) end
  end
end

-- Take a task off the books whose end was noted before; returns as clear_up.
local function take_off(id, flag, how)
  total(how, redis.call('HDEL', PREFIX .. 'tasks', id))
  return clear_up(id, flag)
end
