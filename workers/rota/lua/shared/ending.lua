-- How the life of a task goes on or ends. The caller has taken the entry from wherever it stood.

-- Free the task's unique key, if the key is still its own (one held for a time may have passed to another).
local function free_unique_key(id, flag)
  if not string.find(flag, 'u', 1, true) then return end
  local key = redis.call('HGET', PREFIX .. 'keys', id)
  if not key then return end
  redis.call('HDEL', PREFIX .. 'keys', id)
  if redis.pcall('GET', PREFIX .. 'unique:' .. key) == id then redis.call('DEL', PREFIX .. 'unique:' .. key) end
end

-- What a task that ends may leave elsewhere: its unique key, accounts of its attempts, the record of former lives.
-- Its flag says of each whether it is there, so one that has none costs a comparison. Returns what it left of its earlier
-- attempts, in lines that follow the first of its record.
local function clear_up(id, flag)
  if flag == '-' then return '' end
  local past = false
  free_unique_key(id, flag)
  if string.find(flag, '%u') then
    past = redis.pcall('HGET', PREFIX .. 'epitaphs', id)
    redis.pcall('HDEL', PREFIX .. 'epitaphs', id)
  end
  if string.find(flag, '%d') then numbered_life_ended(id) end
  return type(past) == 'string' and '\n' .. past or ''
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

-- The memory of ends: two generations of a hash, id -> record. When `ended` has `keep` it becomes the one before, so at
-- least the last `keep` are known, for one HSET and one HLEN a call. A record that cannot be written stops no transition
-- half way, so this never raises.
local ENDED, ENDED_BEFORE = PREFIX .. 'ended', PREFIX .. 'ended-before'
local KEEP, MOST_KEPT = 10000, 1000000 -- without a master's word; what a foreign hand may write
local keep -- asked for when the first task of a call may have ended

-- What stands before the entry in a record of tasks that ended `how`; nil when none is to be remembered. `owner`: who ran
-- them, '-' when they waited.
local function record_head(how, now, owner)
  keep = keep or tonumber(redis.pcall('HGET', PREFIX .. 'meta', 'ended_keep')) or KEEP
  if keep > 0 and keep <= MOST_KEPT then return how .. string.format(' %.0f ', now) .. owner .. ' ' end
end

local function remember(records)
  redis.pcall('HSET', ENDED, unpack(records))
  local size = redis.pcall('HLEN', ENDED)
  if type(size) ~= 'number' or size < keep then return end
  redis.call('UNLINK', ENDED_BEFORE) -- in a thread of its own, as RENAME would not
  redis.call('RENAME', ENDED, ENDED_BEFORE)
end

-- What an earlier life of an id left in the memory is not told for one that ended later.
local function forget_ends(ids)
  redis.pcall('HDEL', ENDED, unpack(ids))
  redis.pcall('HDEL', ENDED_BEFORE, unpack(ids))
end

-- Tasks have ended, all of them `how`: done, cancelled, expired, purged or dead. Whichever way they came, it is noted here,
-- while their bodies are still there. `records`: id, record, id, record...; `forgotten`: ids that are not to be remembered.
local function note_ends(how, ids, records, forgotten)
  if tell_waiters then tell_waiters(how, ids) end
  if how ~= 'done' then redis.call('UNLINK', PREFIX .. 'result:' .. ids[1]) end -- one at a time, and of an earlier life
  if #forgotten > 0 then forget_ends(forgotten) end
  if #records > 0 then remember(records) end
end

-- The same of one. `text`: its entry's, or of a dead task its id and ticket; `account`: of its run, with the lines of earlier
-- attempts, as in rota/protocol/ends.py, '' when it is not to be remembered.
local NO_RUN = ' 0 0 0 ' -- and the task's name, or '-': of a run that was not begun, or of which nobody told
local function note_end(how, now, owner, id, text, account)
  if tell and how ~= 'dead' then tell_end(how, text, owner, account) end
  local head = record_head(how, now, owner)
  local records = head and account ~= '' and { id, head .. text .. account } or {}
  note_ends(how, { id }, records, account == '' and { id } or {})
end

-- Take a task off the books whose end was noted before; returns as clear_up.
local function take_off(id, flag, how)
  total(how, redis.call('HDEL', PREFIX .. 'tasks', id))
  return clear_up(id, flag)
end

local function end_task(e, how, now, owner, account)
  local past = clear_up(e.id, e.flag)
  note_end(how, now, owner, e.id, e.text, account == '' and '' or account .. past)
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
  redis.call('HSET', PREFIX .. 'tickets', e.id, ticket_text(e))
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
