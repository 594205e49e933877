-- Settle entries of an owner's in-flight list: n x `entry verb first second` from ARGV[at], as in
-- rota/protocol/outcome.py. An outcome counts only if its entry is in the list, so a late or repeated call changes
-- nothing. The file is a block, because Lua allows a function only 200 locals.
-- keys     inflight:* tasks
local settle
do
  -- Settle tasks that are done without a result. `plain` has their lines in the form of ends.lua. A single task may be
  -- anywhere in the list. Several tasks are removed only if they are the head of the list, in order. Return the entries
  -- that were removed.
  local function settle_plain(inflight, n, plain)
    if n == 1 then -- this takes one command instead of two
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

  -- Settle all outcomes of a call. `call` has these fields:
  --   owner, now        the owner, and Redis time in microseconds
  --   at, n             the outcomes: the index in ARGV of the first outcome, and their number
  --   plain, plain_n    lines of tasks that are done, and their number; only their entries are read, unless events or
  --                     tombstones require more
  -- Return the stale entries; the number of settled tasks by queue, which the caller subtracts from the counters; and
  -- the number of released tasks by queue.
  settle = function(call)
    local inflight, plain, plain_n = PREFIX .. 'inflight:' .. call.owner, call.plain, call.plain_n or 0
    local ids, stale, settled = {}, {}, {}
    local settling = {
      owner = call.owner, now = call.now, inflight = inflight, from = ARGV, at = call.at, n = call.n,
      stale = stale, settled = settled, released = {}, ids = ids, lines = { '' }, count = 0, forgotten = {},
    }
    local head = plain_n > 0 and not any_incarnations and not report and settle_plain(inflight, plain_n, plain) or {}
    if #head > 0 then
      settling.lines[1], settling.count = plain, plain_n
    elseif plain_n > 0 then
      settling.from, settling.at, settling.n = settlements_of(plain, call.at, call.n)
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
    if settling.n > 0 then
      -- with: outcomes
      settle_others(settling)
    end
    if #ids > 0 then
      note_ends('done', call.now, call.owner, settling)
      total('done', redis.call('HDEL', PREFIX .. 'tasks', unpack(ids)))
    end
    return stale, settled, settling.released
  end
end
