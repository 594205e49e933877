-- Settle entries of an owner's in-flight list: n x `entry verb first second` from ARGV[at], as in
-- rota/protocol/outcome.py. An outcome counts only if its entry is in the list, so a late or repeated call changes
-- nothing. The file is a block, because Lua allows a function only 200 locals.
-- keys     inflight:* result:* tasks
local settle
do
  -- Settle outcomes one by one: all but those in `plain`. The functions are made only if there are any, because
  -- defining a function takes time in each turn. Results are added to `stale`, `settled`, `released` and `done`.
  local function settle_others(inflight, from, at, n, now, owner, stale, settled, released, done)
    -- with: other_ends
    -- Settle an outcome other than `done`. The worker knows that the attempt ended or never started, so the mark `b` of
    -- a task that may be started at most once is removed.
    local function settle_otherwise(e, verb, first, second)
      e.flag = string.gsub(string.gsub(e.flag, 'b', ''), '^$', '-')
      if verb == 'cancelled' or verb == 'expired' then
        end_task(e, verb, now, owner, first)
      elseif redis.call('HGET', PREFIX .. 'tasks', e.id) == '' then
        -- The task was cancelled while it ran: there is no other attempt, and nothing to inspect.
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
    -- earlier task with this id is deleted. The text comes from a slot that the task may have overwritten: a TTL that
    -- is not a number counts as 0.
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
    local function end_done(id, text, flag, run_record, kept)
      local past = clear_up(id, flag)
      table.insert(done.ids, id)
      if report then report_end('done', text, owner, run_record) end
      if run_record == '' then
        table.insert(done.forgotten, id)
      else
        table.insert(done.lines, text)
        table.insert(done.lines, run_record_line(run_record) .. past)
      end
      if kept ~= '' then keep_result(id, kept) end
    end

    -- A worker settles its tasks in the order in which it claimed them. Remove those at the head of the list with one
    -- command, and return their number.
    local function take_head_off()
      local head, same = redis.call('LRANGE', inflight, 0, n - 1), 0
      while same < n and head[same + 1] == from[at + same * 4] do same = same + 1 end
      if same > 0 then redis.call('LTRIM', inflight, same, -1) end
      return same
    end

    local left_together = take_head_off()
    for i = 1, n do
      local s = at + (i - 1) * 4
      local text, verb = from[s], from[s + 1]
      local id, queue, flag = names_in(text)
      local e = verb ~= 'done' and parse_entry(text)
      -- A text that is not an entry cannot be settled.
      if not id or e == nil or i > left_together and redis.call('LREM', inflight, 1, text) == 0 then
        stale[#stale + 1] = text
      else
        settled[queue] = (settled[queue] or 0) + 1
        if any_progress then redis.pcall('HDEL', PROGRESS, id) end
        -- A superseded task was counted when its id was used again.
        local is_superseded = any_incarnations and is_tombstone(id, flag, true)
        if verb == 'done' and not is_superseded then
          end_done(id, text, flag, from[s + 2], from[s + 3])
        elseif not is_superseded then
          settle_otherwise(e, verb, from[s + 2], from[s + 3])
          if verb == 'release' then released[queue] = (released[queue] or 0) + 1 end
        end
      end
    end
  end

  -- Settle tasks that are done without a result. `plain` has their lines in the form of the memory of ends. A single
  -- one may be anywhere in the list. Several are removed only if they are the head of the list, in order. Return the
  -- entries that were removed.
  local function settle_plain(inflight, n, plain)
    if n == 1 then -- one command instead of two
      local text = string.match(plain, '^\n([^\n]+)\n[^\n]*$')
      return text and redis.call('LREM', inflight, '1', text) == 1 and { text } or {}
    end
    local head, at, find, byte = redis.call('LRANGE', inflight, '0', n - 1), 1, string.find, string.byte
    for i = 1, #head do
      local text = head[i]
      local behind = (at or 0) + 1 + #text
      if not at or find(plain, text, at + 1, true) ~= at + 1 or byte(plain, behind) ~= 10 then return {} end
      at = find(plain, '\n', behind + 1, true)
    end
    if at or #head < n then return {} end
    redis.call('LTRIM', inflight, n, '-1')
    return head
  end

  -- Return the plain lines and the other outcomes as one list of outcomes, its first index, and their number.
  local function settlements_of(plain, at, n)
    local all = {}
    for text, run_record in string.gmatch(plain, '\n([^\n]+)\n( [^\n]*)') do
      for _, arg in ipairs({ text, 'done', run_record, '' }) do all[#all + 1] = arg end
    end
    for i = at, at + n * 4 - 1 do all[#all + 1] = ARGV[i] end
    return all, 1, #all / 4
  end

  -- Settle all outcomes of a call. `plain` has the lines of `plain_n` tasks that are done; only their entries are read,
  -- unless events or tombstones require more. Return the stale entries; by queue the number of settled tasks, which the
  -- caller subtracts from the counters; and by queue the number of released tasks.
  settle = function(owner, at, n, now, plain_n, plain)
    local stale, settled, released, ids = {}, {}, {}, {}
    local done = { ids = ids, lines = { '' }, count = 0, forgotten = {} }
    local inflight, from = PREFIX .. 'inflight:' .. owner, ARGV
    local head = plain_n > 0 and not any_incarnations and not report and settle_plain(inflight, plain_n, plain) or {}
    if #head > 0 then
      done.lines[1], done.count = plain, plain_n
    elseif plain_n > 0 then
      from, at, n = settlements_of(plain, at, n)
    end
    for i = 1, #head do
      local id, queue, flag = names_in(head[i])
      if id then
        settled[queue] = (settled[queue] or 0) + 1
        if flag ~= '-' then clear_up(id, flag) end
        ids[#ids + 1] = id
      else
        stale[#stale + 1] = head[i]
      end
    end
    if any_progress and #ids > 0 then redis.pcall('HDEL', PROGRESS, unpack(ids)) end
    if n > 0 then settle_others(inflight, from, at, n, now, owner, stale, settled, released, done) end
    if #ids > 0 then
      note_ends('done', now, owner, done)
      total('done', redis.call('HDEL', PREFIX .. 'tasks', unpack(ids)))
    end
    return stale, settled, released
  end
end
