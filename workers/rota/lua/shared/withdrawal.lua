-- Cancel occurrences that were enqueued ahead of time, when their schedule is paused, changed or removed.
-- with: other_ends ticket
-- keys     delayed tasks tickets

-- End an occurrence that must not run, like a waiting task that was cancelled. The caller has removed it from
-- `delayed`.
local function leave_out(e, now)
  local _, _, task = item_names(redis.call('HGET', PREFIX .. 'tasks', e.id) or '')
  e.text = entry_text(e)
  end_task(e, 'cancelled', now, '-', NO_RUN .. (task or '-'))
end

-- Return the id that `occurrence_id` of rota/protocol/schedule_store.py returns. The id contains the time in Unix
-- seconds, with a fraction if necessary.
local function occurrence_id(name, at)
  return name .. ':' .. (string.gsub(string.format('%.6f', at / 1000000), '%.?0+$', ''))
end

local function take_back(id, now)
  local due = redis.call('ZSCORE', PREFIX .. 'delayed', id)
  local e = due and parse_ticket(id, redis.call('HGET', PREFIX .. 'tickets', id))
  if not e or e.kind ~= 'p' then return false end
  redis.call('ZREM', PREFIX .. 'delayed', id)
  redis.call('HDEL', PREFIX .. 'tickets', id)
  count('delayed:' .. e.queue, -1)
  e.due, e.ready = from_score(due), 0
  leave_out(e, now)
  return true
end

-- Cancel the occurrences with times after `after`. An occurrence that is past its time but still delayed by jitter
-- stays in `ahead`. The time of the latest occurrence that became ready goes to `last`.
local function withdraw(name, s, after, now)
  local left = {}
  for at in string.gmatch(s.ahead, '%d+') do
    local time = whole(at)
    local id = time and occurrence_id(name, time)
    if time and not (time > after and take_back(id, now)) then
      if redis.call('ZSCORE', PREFIX .. 'delayed', id) then
        left[#left + 1] = at
      else
        s.last = math.max(s.last, time)
      end
    end
  end
  s.ahead = #left > 0 and table.concat(left, ',') or '-'
end
