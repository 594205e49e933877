-- Task events: the stream `events` has an entry for each change of a task, written by the transition that makes the
-- change. `events-on` maps each node that has events enabled to the approximate number of events to keep. If no node
-- has events enabled, `report` is nil, and callers skip it: `if report then report(...) end`. A stream of the wrong
-- type does not stop any transition.
-- keys     events tasks
local report, report_end, task_name_in, reason_in
if any_events then
  -- with: legacy_item
  local STORY = '^(%S+) (%S+) .* (%d+) (%d+) (%d+) %d+ %S+$'
  local most = 0
  for _, text in ipairs(redis.pcall('HVALS', EVENTS_ON)) do
    most = math.max(most, tonumber(string.match(text, '^%d%d?%d?%d?%d?%d?%d?%d?%d?$')) or 0)
  end
  most = string.format('%.0f', most)

  -- Return the name of the task in a body, '' if it cannot be read.
  task_name_in = function(body)
    local head = string.sub(body or '', 1, 600)
    local name = string.match(head, '^%s*%[%s*"[^"]*"%s*,%s*"[^"]*"%s*,%s*"([^"]*)"')
      or string.match(head, '^%s*%[%s*"([^"]*)"%s*,%s*%[')
    return name_or_nil(name) or ''
  end

  -- Write an event. `text` is the current entry, or the id and the ticket. `owner` holds the task, or held it until
  -- now. `name` is the name of the task; if it is nil, it is read from the body. `started` is 1 if the counters of the
  -- entry do not include the current attempt yet. More fields may follow as name and value.
  report = function(what, text, owner, name, started, ...)
    local id, queue, failures, crashes, losses = string.match(text, STORY)
    redis.pcall('XADD', PREFIX .. 'events', 'MAXLEN', '~', most, '*', 'event', what, 'task_id', id, 'queue', queue,
      'task', name or task_name_in(redis.call('HGET', PREFIX .. 'tasks', id)),
      'attempt', failures + crashes + losses + (started or 0), 'owner', owner or '', ...)
  end

  -- Write the event for a task that has ended but is not dead, from the record of its run. Call it before the body is
  -- deleted.
  report_end = function(how, text, owner, run_record)
    local start, run, name = string.match(run_record, '^ (%d+) (%d+) %d+ (%S+)')
    local ran = how == 'done' or start and start ~= '0'
    local runtime = start and start ~= '0' and { 'run_us', run } or {}
    report(how, text, owner ~= '-' and owner, name ~= '-' and name or nil, ran and 1, unpack(runtime))
  end

  -- Return the reason in a death record or in the record of a crash, where it is the first field.
  reason_in = function(record) return string.match(record or '', '"reason": ?"([%w_]+)"') or '' end
end
