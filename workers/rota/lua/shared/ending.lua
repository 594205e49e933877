-- Record the end of a task, and remove what the task leaves behind. The caller has removed the entry from its lane,
-- list or set.
-- with: ends
-- keys     epitaphs keys meta result:* tasks unique:*
local follow -- a function that processes chains and groups, or nil if there are none: see following.lua

-- Free the task's unique key, if the task still holds the key. A key that is held for a limited time may belong to
-- another task.
local function free_unique_key(id, flag)
  if not string.find(flag, 'u', 1, true) then return end
  local key = redis.call('HGET', PREFIX .. 'keys', id)
  if not key then return end
  redis.call('HDEL', PREFIX .. 'keys', id)
  if redis.pcall('GET', PREFIX .. 'unique:' .. key) == id then redis.call('DEL', PREFIX .. 'unique:' .. key) end
end

-- Return the record of a run as a line of the text in ends.lua. The record comes from a worker's slot, which a task may
-- have overwritten. If the record does not have this form, the run counts as unknown.
local NO_RUN = ' 0 0 0 ' -- for a task that was not started or whose run is unknown; its name or '-' follows
local function run_record_line(run_record)
  local is_line = string.sub(run_record, 1, 1) == ' ' and not string.find(run_record, '\n', 1, true)
  return is_line and run_record or NO_RUN .. '-'
end

local function after_run_record(past) return '\r' .. string.gsub(string.gsub(past, '\r', ' '), '\n', '\r') end

-- When a task ends, remove its data in other keys: its unique key, its attempt records, and the record of earlier tasks
-- with its id. The flag shows which of these exist, so a task with none of them costs one comparison. Return the
-- attempt records as text that can follow the record of the run.
local function clear_up(id, flag)
  if flag == '-' then return '' end
  local past = false
  free_unique_key(id, flag)
  if string.find(flag, '%u') then
    past = redis.pcall('HGET', PREFIX .. 'epitaphs', id)
    redis.pcall('HDEL', PREFIX .. 'epitaphs', id)
  end
  if string.find(flag, '%d') then incarnation_ended(id) end
  return type(past) == 'string' and after_run_record(past) or ''
end

local note_ends
do -- a block, because Lua allows a function only 200 locals
  -- Write the text of ends.lua. This never raises an error, because a key that cannot be written must not stop a script
  -- after its first write.
  local keep -- read when the first task of a call ends
  local function remembers()
    -- The number of ended tasks to keep if no master has set it, and the highest number that a master may set.
    local KEEP, MOST_KEPT = 10000, 1000000
    keep = keep or tonumber(redis.pcall('HGET', PREFIX .. 'meta', 'ended_keep')) or KEEP
    return keep > 0 and keep <= MOST_KEPT
  end

  -- Seal the current text, so that the next end begins a new one. `known` is the number of all ends so far. If it is
  -- not valid, another program has overwritten it, so delete the text and begin again. After sealing, delete the oldest
  -- sealed texts for as long as the newer texts hold at least `keep` ends, and remove list items that are not valid
  -- numbers.
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
    -- The size in bytes at which a text is sealed. If `keep` is small, texts are shorter: SHORTEST bytes for each end
    -- to keep.
    local LONG, SHORTEST = 32768, 16
    local SHORT = 2048 -- a second APPEND costs more than joining the head with a text of at most this size
    local head = string.format('\n!%d %s %.0f %s', count, how, now, owner)
    if #text > SHORT then redis.pcall('APPEND', ENDS, head) else text = head .. text end
    local size = redis.pcall('APPEND', ENDS, text)
    local known = redis.pcall('HINCRBY', PREFIX .. 'meta', 'ended', count)
    if type(size) == 'number' and size >= math.min(LONG, keep * SHORTEST) then seal(known) end
  end

  local function note_forgotten(ids, now)
    local LONG = 32768
    local at = string.format(' %.0f', now)
    local size = redis.pcall('APPEND', UNTOLD, '\n' .. table.concat(ids, at .. '\n') .. at)
    if type(size) ~= 'number' or size < LONG then return end
    redis.call('SET', UNTOLD, string.match(redis.call('GETRANGE', UNTOLD, -LONG / 2, -1), '\n.*') or '')
  end

  -- Record that tasks have ended. Every script calls this for every end, while the bodies still exist. `how` is done,
  -- cancelled, expired, purged or dead, for all of them. `ended` has these fields:
  --   ids        the ids of all these tasks
  --   lines      the tasks to remember: a text for `count` tasks, or ''; then entry, record, entry, record...
  --   count      number of tasks in that text
  --   forgotten  ids of the tasks that are not to be remembered
  note_ends = function(how, now, owner, ended)
    if notify_waiters then notify_waiters(how, ended.ids) end
    if follow then follow(how, now, ended.ids) end
    -- Only tasks that are done are recorded several at a time. If `how` is not done, there is one task, and a stored
    -- result belongs to an earlier task with its id.
    if how ~= 'done' then redis.call('UNLINK', PREFIX .. 'result:' .. ended.ids[1]) end
    if not remembers() then return end
    local lines, count = ended.lines, ended.count + (#ended.lines - 1) / 2
    if count > 0 then remember(how, now, owner, count, #lines > 1 and table.concat(lines, '\n') or lines[1]) end
    if #ended.forgotten > 0 then note_forgotten(ended.forgotten, now) end
  end
end

-- Remove a task whose end was recorded before. Return what `clear_up` returns.
local function remove_ended(id, flag, how)
  total(how, redis.call('HDEL', PREFIX .. 'tasks', id))
  return clear_up(id, flag)
end
