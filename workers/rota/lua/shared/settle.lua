-- Settle entries of an owner's in-flight list: n x `entry verb first second` from ARGV[at] on, as in
-- rota/protocol/outcome.py. Each is gated on the entry being in the list, so a late or repeated call finds nothing.
-- A block, as Lua knows no more than 200 names of a script.
local settle
do
  -- How the life of a task that did not end well goes on. Its worker knows that the attempt ended, or was none: the mark
  -- of a task that may be started once at most goes.
  local function settle_otherwise(e, verb, first, second, now, owner)
    e.flag = string.gsub(string.gsub(e.flag, 'b', ''), '^$', '-')
    if verb == 'cancelled' or verb == 'expired' then
      end_task(e, verb, now, owner, first)
    elseif redis.call('HGET', PREFIX .. 'tasks', e.id) == '' then
      -- Asked for while it ran: there is no next attempt, and nothing to look at.
      end_task(e, 'cancelled', now, owner, NO_RUN .. '-')
    elseif verb == 'dead' then
      e.failures = e.failures + 1
      bury(e, first, now, owner)
    elseif verb == 'retry' then
      e.failures = e.failures + 1
      e.kind = 'r'
      local due = now + math.max(0, tonumber(first) or 0)
      if second ~= '' then keep_account(e, 'E', second) end
      delay(e, due)
      if tell then tell('retried', entry_text(e), owner, nil, 0, 'due_us', string.format('%.0f', due)) end
    else
      e.releases = e.releases + 1
      if give_back(e, now) and tell then tell('released', entry_text(e), owner) end
    end
  end

  -- `TTL_MS RESULT`, where one was to be kept; with 0 it was refused, and there is none of an earlier life either. The time
  -- may be of a slot that a task wrote to: one that is no whole number keeps nothing.
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

  -- One more that is done, and what it leaves.
  local function note_done(done, id, text, account, past, owner)
    if tell then tell_end('done', text, owner, account) end
    if account == '' then
      table.insert(done.untold, id)
    else
      table.insert(done.lines, text)
      table.insert(done.lines, account_line(account) .. past)
    end
  end

  -- A worker settles what it claimed, in order: those at the head of the list leave it together. Returns how many.
  local function settle_head(inflight, from, at, n)
    local head, same = redis.call('LRANGE', inflight, 0, n - 1), 0
    while same < n and head[same + 1] == from[at + same * 4] do same = same + 1 end
    if same > 0 then redis.call('LTRIM', inflight, same, -1) end
    return same
  end

  -- The same of those that are simply done: `plain` has their lines, as the memory of ends keeps them. They leave it only if
  -- all stand there; returns their entries.
  local function settle_plain(inflight, n, plain)
    local head, at = redis.call('LRANGE', inflight, 0, n - 1), 1
    for _, text in ipairs(head) do
      local behind = (at or 0) + 1 + #text
      if not at or string.find(plain, text, at + 1, true) ~= at + 1 or string.byte(plain, behind) ~= 10 then return {} end
      at = string.find(plain, '\n', behind + 1, true)
    end
    if at or #head < n then return {} end
    redis.call('LTRIM', inflight, n, -1)
    return head
  end

  -- Lines and settlements, all as settlements: where they begin, and how many these are.
  local function settlements_of(plain, at, n)
    local all = {}
    for text, account in string.gmatch(plain, '\n([^\n]+)\n( [^\n]*)') do
      for _, arg in ipairs({ text, 'done', account, '' }) do all[#all + 1] = arg end
    end
    for i = at, at + n * 4 - 1 do all[#all + 1] = ARGV[i] end
    return all, 1, #all / 4
  end

  -- Returns the entries that left the list together by their lines; and all others as settlements, where these begin, and how
  -- many they are.
  local function settle_lines(inflight, done, plain_n, plain, at, n)
    if plain_n == 0 then return {}, ARGV, at, n end
    local head = not any_former and not tell and settle_plain(inflight, plain_n, plain) or {}
    if #head == 0 then return head, settlements_of(plain, at, n) end
    done.lines[1], done.count = plain, plain_n
    return head, ARGV, at, n
  end

  -- Returns the entries that were not held, and queue -> { settled, released } with how many of each. `plain`: the lines of
  -- `plain_n` that are simply done. Of these nothing is looked at but their entries, unless more has to be told of them.
  settle = function(owner, at, n, now, plain_n, plain)
    local stale, by_queue, done = {}, {}, { ids = {}, lines = { '' }, count = 0, untold = {} }
    local inflight = PREFIX .. 'inflight:' .. owner
    local head, from
    head, from, at, n = settle_lines(inflight, done, plain_n, plain, at, n)
    local first_held = #head + (n > 0 and settle_head(inflight, from, at, n) or 0) + 1
    for i = 1, #head + n do
      local text, verb, first, second = head[i], 'done', nil, ''
      if not text then
        local s = at + (i - #head - 1) * 4
        text, verb, first, second = from[s], from[s + 1], from[s + 2], from[s + 3]
      end
      local id, queue, flag = names_in(text)
      local e = verb ~= 'done' and parse_entry(text)
      -- Of what is no entry there is nothing to settle either.
      if not id or e == nil or i >= first_held and redis.call('LREM', inflight, 1, text) == 0 then
        stale[#stale + 1] = text
      else
        local of = by_queue[queue] or { settled = 0, released = 0 }
        by_queue[queue] = of
        of.settled = of.settled + 1
        if any_progress then redis.pcall('HDEL', PROGRESS, id) end
        local is_former = any_former and is_shell(id, flag, true) -- it was counted when the next life began
        if verb == 'done' and not is_former then
          local past = clear_up(id, flag)
          done.ids[#done.ids + 1] = id
          if first then note_done(done, id, text, first, past, owner) end
          if second ~= '' then keep_result(id, second) end
        elseif not is_former then
          settle_otherwise(e, verb, first, second, now, owner)
          if verb == 'release' then of.released = of.released + 1 end
        end
      end
    end
    if #done.ids > 0 then
      note_ends('done', now, owner, done)
      total('done', redis.call('HDEL', PREFIX .. 'tasks', unpack(done.ids)))
    end
    for queue, of in pairs(by_queue) do count('running:' .. queue, -of.settled) end
    return stale, by_queue
  end
end
