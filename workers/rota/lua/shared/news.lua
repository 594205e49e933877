-- Task events: one entry of the stream `events` for each change of a task, written by the transition that makes it. They are
-- wanted as long as `events-on` says so: node -> how many entries it wants kept, about. While nobody wants any there is no
-- `tell`, so that a call costs nothing: `if tell then tell(...) end`. A stream that somebody overwrote stops no transition.
local tell, task_in
if any_events then
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

  -- Of the task with this entry, or its id and its ticket; `owner` when one holds it, or held it until now: then the attempt is the one that it was
  -- claimed for. Without a name, that is read from the body. More fields with their values may follow.
  tell = function(what, text, owner, name, ...)
    local id, queue, failures, crashes, losses = string.match(text, STORY)
    redis.pcall('XADD', PREFIX .. 'events', 'MAXLEN', '~', most, '*', 'event', what, 'task_id', id, 'queue', queue,
      'task', name or task_in(redis.call('HGET', PREFIX .. 'tasks', id)),
      'attempt', failures + crashes + losses + (owner and 1 or 0), 'owner', owner or '', ...)
  end
end
