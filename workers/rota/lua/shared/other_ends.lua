-- All ways in which an attempt or a task can end, except `done` without a result. The caller has removed the entry from
-- its lane, list or set.
-- with: ending ticket place
-- keys     dead epitaphs queue:* ready tasks tickets

-- The attempt records of a task, one per line, latest last, at most ten.
local MOST_RECORDS = 10
local function add_attempt_record(e, record)
  local line = string.gsub(record, '\n', ' ') -- the record comes from a slot, which the task may have overwritten
  local before = string.find(e.flag, '%u') and redis.call('HGET', PREFIX .. 'epitaphs', e.id)
  if before then
    local _, breaks = string.gsub(before, '\n', '\n')
    if breaks + 1 >= MOST_RECORDS then before = string.gsub(before, '^[^\n]*\n', '') end
    line = before .. '\n' .. line
  end
  redis.call('HSET', PREFIX .. 'epitaphs', e.id, line)
end

-- Keep the record of an attempt that failed or was cut short, for a task that will run again. `mark` is a capital
-- letter for the kind of the last crash or loss, `E` if there was only an exception.
local function keep_attempt_record(e, mark, record)
  add_attempt_record(e, record)
  if mark ~= 'E' or not string.find(e.flag, '%u') then e.flag = string.gsub(e.flag, '[%u-]', '') .. mark end
end

-- Record the end of one task. `text` is its entry, or the id and ticket of a dead task. `run_record` has the records of
-- its last run and of earlier attempts, '' if the task is not to be remembered.
local function note_end(how, now, owner, id, text, run_record)
  if report and how ~= 'dead' then report_end(how, text, owner, run_record) end
  local is_remembered = run_record ~= ''
  local lines, forgotten = is_remembered and { '', text, run_record } or { '' }, is_remembered and {} or { id }
  note_ends(how, now, owner, { ids = { id }, lines = lines, count = 0, forgotten = forgotten })
end

local function end_task(e, how, now, owner, run_record)
  local past = clear_up(e.id, e.flag)
  note_end(how, now, owner, e.id, e.text, run_record == '' and '' or run_record_line(run_record) .. past)
  total(how, redis.call('HDEL', PREFIX .. 'tasks', e.id))
end

-- Set a task aside as dead, for people to inspect. Its unique key is freed, so that the next enqueue with that key
-- succeeds before anybody has looked at the task. The task is recorded in `dead` and `epitaphs`.
local function bury(e, record, now, owner)
  free_unique_key(e.id, e.flag)
  add_attempt_record(e, record)
  e.flag = string.match(e.flag, '%d+') or '-'
  local ticket = ticket_text(e)
  redis.call('HSET', PREFIX .. 'tickets', e.id, ticket)
  redis.call('ZADD', PREFIX .. 'dead', to_score(now), e.id)
  count('dead:' .. e.queue, 1)
  if report then report('dead', e.id .. ' ' .. ticket, owner, nil, 0, 'reason', reason_in(record)) end
  note_end('dead', now, '-', e.id, e.id .. ' ' .. ticket, '')
end

-- The death record of a task whose lane is a key of the wrong type. The task becomes dead, so that it does not delay
-- others.
local UNUSABLE = '{"reason":"unusable_lane","error":"the key of a lane of this queue is not a list: '
  .. 'delete that key, then revive this task"}'

local MAY_HAVE_STARTED = '{"reason":"at_most_once","error":"it may have been started, and its worker died before '
  .. 'it reported the end"}'

-- Put an entry back at the head of its lane. Return false if it became dead instead, because its lane is not a list, or
-- because it is marked as started and may be started only once. The caller has increased a counter of the entry, so no
-- entry has had this text before.
local function give_back(e, now)
  local lane = lane_of(e.queue, e.kind)
  local is_marked = string.find(e.flag, 'b', 1, true)
  if is_marked or not is_list(lane) then
    bury(e, is_marked and MAY_HAVE_STARTED or UNUSABLE, now)
    return false
  end
  redis.call('LPUSH', lane, entry_text(e))
  redis.call('SADD', PREFIX .. 'ready', e.queue)
  return true
end
