-- Task events: one entry of the stream `events` for each change of a task, written by the transition that makes it.
-- They are wanted as long as `events-on` says so: node -> how many entries it wants kept, about. While nobody wants any
-- there is no `tell`, so that a call costs nothing: `if tell then tell(...) end`. A stream that somebody overwrote
-- stops no transition.
-- keys     events tasks
local tell, tell_end, task_in, reason_in
if any_events then
  -- with: bare
  local STORY = '^(%S+) (%S+) .* (%d+) (%d+) (%d+) %d+ %S+$'
  local most = 0
  for _, text in ipairs(redis.pcall('HVALS', EVENTS_ON)) do
    most = math.max(most, tonumber(string.match(text, '^%d%d?%d?%d?%d?%d?%d?%d?%d?$')) or 0)
  end
  most = string.format('%.0f', most)

  -- The name of a task by its body, '' when none can be read.
  task_in = function(body)
    local head = string.sub(body or '', 1, 600)
    local name = string.match(head, '^%s*%[%s*"[^"]*"%s*,%s*"[^"]*"%s*,%s*"([^"]*)"')
      or string.match(head, '^%s*%[%s*"([^"]*)"%s*,%s*%[')
    return name_or_nil(name) or ''
  end

  -- Of the task with this entry, or its id and its ticket, as it is now. `owner` has it, or had it until now. `name` of
  -- the task: nil when that is still to be read from its body. `begun`: 1 for an attempt that no counter counts yet.
  -- More fields with their values may follow.
  tell = function(what, text, owner, name, begun, ...)
    local id, queue, failures, crashes, losses = string.match(text, STORY)
    redis.pcall('XADD', PREFIX .. 'events', 'MAXLEN', '~', most, '*', 'event', what, 'task_id', id, 'queue', queue,
      'task', name or task_in(redis.call('HGET', PREFIX .. 'tasks', id)),
      'attempt', failures + crashes + losses + (begun or 0), 'owner', owner or '', ...)
  end

  -- Of a task that has ended otherwise than dead, by the account of its run; before its body goes.
  tell_end = function(how, text, owner, account)
    local start, run, name = string.match(account, '^ (%d+) (%d+) %d+ (%S+)')
    local ran = how == 'done' or start and start ~= '0'
    local runtime = start and start ~= '0' and { 'run_us', run } or {}
    tell(how, text, owner ~= '-' and owner, name ~= '-' and name or nil, ran and 1, unpack(runtime))
  end

  -- The reason in an epitaph or the account of a crash: it stands first there.
  reason_in = function(account) return string.match(account or '', '"reason": ?"([%w_]+)"') or '' end
end
