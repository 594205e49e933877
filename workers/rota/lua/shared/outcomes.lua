-- Settle outcomes one by one. shared/settle.lua settles tasks that are done without a result, and includes this file
-- only if there are other outcomes, because creating these functions takes time in each turn. `settling` is a record
-- with these fields:
--   owner, now  the owner, and Redis time in microseconds
--   inflight    key of the owner's list
--   from        list of outcomes: `n` of them from `at` on, each `entry verb first second`
--   stale, settled, released  what `settle` returns
--   ids, lines, count, forgotten  the tasks that are done, as `note_ends` takes them
-- with: other_ends
-- keys     result:* tasks

-- Settle an outcome other than `done`. The worker knows that the attempt ended or never started, so the mark
-- `b` of a task that may be started at most once is removed.
local function settle_otherwise(settling, e, verb, first, second)
  local now, owner = settling.now, settling.owner
  e.flag = string.gsub(string.gsub(e.flag, 'b', ''), '^$', '-')
  if verb == 'cancelled' or verb == 'expired' then
    end_task(e, verb, now, owner, first)
  elseif redis.call('HGET', PREFIX .. 'tasks', e.id) == '' then
    -- The task was cancelled while it ran. So it is neither attempted again nor set aside as dead.
    end_task(e, 'cancelled', now, owner, NO_RUN .. '-')
  elseif verb == 'dead' then
    e.failures = e.failures + 1
    bury(e, first, now, owner)
  elseif verb == 'retry' then
    e.failures = e.failures + 1
    e.kind = 'r'
    local due = now + math.max(0, tonumber(first) or 0)
    if second ~= '' then keep_attempt_record(e, 'E', second) end
    delay(e, due)
    if report then report('retried', entry_text(e), owner, nil, 0, 'due_us', string.format('%.0f', due)) end
  else
    e.releases = e.releases + 1
    if give_back(e, now) and report then report('released', entry_text(e), owner) end
  end
end

-- Store a result. `kept` is `TTL_MS RESULT`. A TTL of 0 means that the result was refused; then the result of an
-- earlier task with this id is deleted. A TTL that is not a number counts as 0, because the text comes from a slot that
-- the task may have overwritten.
local function keep_result(id, kept)
  local space = string.find(kept, ' ', 1, true)
  local ttl = space and math.min(tonumber(string.sub(kept, 1, space - 1)) or 0, LATEST) or 0
  local result = PREFIX .. 'result:' .. id
  if ttl > 0 then
    redis.pcall('SET', result, string.sub(kept, space + 1), 'PX', ttl)
  else
    redis.call('UNLINK', result)
  end
end

-- End one task that is done.
local function end_done(settling, id, text, flag, run_record, kept)
  local past = clear_up(id, flag)
  table.insert(settling.ids, id)
  if report then report_end('done', text, settling.owner, run_record) end
  if run_record == '' then
    table.insert(settling.forgotten, id)
  else
    table.insert(settling.lines, text)
    table.insert(settling.lines, run_record_line(run_record) .. past)
  end
  if kept ~= '' then keep_result(id, kept) end
end

-- A worker settles its tasks in the order in which it claimed them. Remove the tasks at the head of the list with one
-- command, and return their number.
local function take_head_off(inflight, from, at, n)
  local head, same = redis.call('LRANGE', inflight, 0, n - 1), 0
  while same < n and head[same + 1] == from[at + same * 4] do same = same + 1 end
  if same > 0 then redis.call('LTRIM', inflight, same, -1) end
  return same
end

local function settle_others(settling)
  local inflight, from, settled, released = settling.inflight, settling.from, settling.settled, settling.released
  local left_together = take_head_off(inflight, from, settling.at, settling.n)
  for i = 1, settling.n do
    local s = settling.at + (i - 1) * 4
    local text, verb = from[s], from[s + 1]
    local id, queue, flag = names_in(text)
    local e = verb ~= 'done' and parse_entry(text)
    -- A text that is not an entry cannot be settled.
    if not id or e == nil or i > left_together and redis.call('LREM', inflight, 1, text) == 0 then
      table.insert(settling.stale, text)
    else
      settled[queue] = (settled[queue] or 0) + 1
      if any_progress then redis.pcall('HDEL', PROGRESS, id) end
      -- If the id was used again, the earlier task with this id was counted as cancelled at that time.
      local is_superseded = any_incarnations and is_tombstone(id, flag, true)
      if verb == 'done' and not is_superseded then
        end_done(settling, id, text, flag, from[s + 2], from[s + 3])
      elseif not is_superseded then
        settle_otherwise(settling, e, verb, from[s + 2], from[s + 3])
        if verb == 'release' then released[queue] = (released[queue] or 0) + 1 end
      end
    end
  end
end
