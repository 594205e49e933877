-- Settle entries of an owner's in-flight list: n x `entry verb first second` from ARGV[at] on, as in
-- rota/protocol/outcome.py. Each is gated on the entry being in the list, so a late or repeated call finds nothing.

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

-- A worker settles what it claimed, in order: those at the head of the list leave it together. Returns how many.
local function settle_head(inflight, at, n)
  local head, same = redis.call('LRANGE', inflight, 0, n - 1), 0
  while same < n and head[same + 1] == ARGV[at + same * 4] do same = same + 1 end
  if same > 0 then redis.call('LTRIM', inflight, same, -1) end
  return same
end

-- Returns the entries that were not held, and queue -> { settled, released } with how many of each.
local function settle(owner, at, n, now)
  local stale, by_queue, done, records, kept, forgotten = {}, {}, {}, {}, 0, {}
  local inflight = PREFIX .. 'inflight:' .. owner
  local head = n > 0 and settle_head(inflight, at, n) or 0
  local heading = n > 0 and record_head('done', now, owner)
  for i = 0, n - 1 do
    local s = at + i * 4
    local text, verb = ARGV[s], ARGV[s + 1]
    local id, queue, flag = names_in(text)
    local e = verb ~= 'done' and parse_entry(text)
    if not id or e == nil then
      stale[#stale + 1] = text -- no entry: there is nothing to settle
    elseif i >= head and redis.call('LREM', inflight, 1, text) == 0 then
      stale[#stale + 1] = text
    else
      local of = by_queue[queue] or { settled = 0, released = 0 }
      by_queue[queue] = of
      of.settled = of.settled + 1
      if any_progress then redis.pcall('HDEL', PROGRESS, id) end
      local is_former = any_former and is_shell(id, flag, true) -- it was counted when the next life began
      if verb == 'done' and not is_former then
        local account, past, place = ARGV[s + 2], clear_up(id, flag), #done + 1
        done[place] = id
        if tell then tell_end('done', text, owner, account) end
        if account == '' then
          forgotten[#forgotten + 1] = id
        elseif heading then
          kept = kept + 2
          records[kept - 1], records[kept] = id, heading .. text .. account .. past
        end
        if ARGV[s + 3] ~= '' then keep_result(id, ARGV[s + 3]) end
      elseif not is_former then
        settle_otherwise(e, verb, ARGV[s + 2], ARGV[s + 3], now, owner)
        if verb == 'release' then of.released = of.released + 1 end
      end
    end
  end
  if #done > 0 then
    note_ends('done', done, records, forgotten)
    total('done', redis.call('HDEL', PREFIX .. 'tasks', unpack(done)))
  end
  for queue, of in pairs(by_queue) do count('running:' .. queue, -of.settled) end
  return stale, by_queue
end
