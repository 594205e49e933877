-- Tasks that may be started at most once. Before the worker starts such a task, its entry gets the mark `b` in its
-- flag. If the worker settles the entry, it knows whether the task was started. If the worker has died, no process
-- knows, so the script that finds the entry sets the task aside as dead.
local function marked_text(text)
  local before, flag = string.match(text, '^(.* )(%S+)$')
  if not before or string.find(flag, 'b', 1, true) then return text end
  return before .. string.gsub(string.gsub(flag, '%-', ''), '(%u?)$', 'b%1', 1)
end
