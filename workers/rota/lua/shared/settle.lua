-- Settle one entry of an owner's in-flight list: `verb first second` as in rota/protocol/outcome.py. Gated on the entry
-- being in the list, so a late or repeated call finds nothing. Answers the entry, or nil when it was not held.
local function settle(owner, text, verb, first, second, now)
  local e = parse_entry(text)
  if not e or redis.call('LREM', PREFIX .. 'inflight:' .. owner, 1, text) == 0 then return nil end
  count('running:' .. e.queue, -1)
  if verb == 'done' then
    local ttl = math.min(tonumber(second) or 0, LATEST)
    if ttl > 0 then redis.call('SET', PREFIX .. 'result:' .. e.id, first, 'PX', ttl) end
    end_task(e, 'done')
  elseif verb == 'cancelled' or verb == 'expired' then
    end_task(e, verb)
  elseif redis.call('HGET', PREFIX .. 'tasks', e.id) == '' then
    end_task(e, 'cancelled') -- asked for while it ran: there is no next attempt, and nothing to look at
  elseif verb == 'dead' then
    e.failures = e.failures + 1
    bury(e, first, now)
  elseif verb == 'retry' then
    e.failures = e.failures + 1
    e.kind = 'r'
    delay(e, now + math.max(0, tonumber(first) or 0))
  else
    e.releases = e.releases + 1
    give_back(e, now)
  end
  return e
end
