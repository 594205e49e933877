-- How the life of a task goes on, or ends, that is not simply done. The caller has taken the entry from wherever it
-- stood.
-- with: ending ticket place
-- keys     dead epitaphs queue:* ready tasks tickets

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

-- A task that goes on keeps the account of an attempt that failed, or was cut short. The mark, a capital letter, says
-- how its last crash or loss came about; `E` is that of a task which had none.
local function keep_account(e, mark, account)
  add_account(e, account)
  if mark ~= 'E' or not string.find(e.flag, '%u') then e.flag = string.gsub(e.flag, '[%u-]', '') .. mark end
end

-- The end of one task is noted. `text`: its entry's, or of a dead task its id and ticket; `account`: of its run and of
-- earlier attempts, '' when it is not to be remembered.
local function note_end(how, now, owner, id, text, account)
  if tell and how ~= 'dead' then tell_end(how, text, owner, account) end
  local is_told = account ~= ''
  local lines, untold = is_told and { '', text, account } or { '' }, is_told and {} or { id }
  note_ends(how, now, owner, { ids = { id }, lines = lines, count = 0, untold = untold })
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

-- Somebody put another thing where a lane should be. The task is set aside rather than left in the way of others.
local UNUSABLE = '{"reason":"unusable_lane","error":"a key in the place of the lane of this queue is not a list: '
  .. 'delete that key, then revive this task"}'

local BEGUN = '{"reason":"at_most_once","error":"it may have been started, and its worker was gone before it said so"}'

-- Back to the head of its lane; returns false when it had to be set aside, as what has begun. The caller grew one of
-- the counters, so the text is new.
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
