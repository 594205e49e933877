-- End an occurrence that is not to run; its caller took it out of `delayed`. It counts as cancelled while it waited.
-- with: otherwise
-- keys     tasks
local function leave_out(e, now)
  local _, _, task = bare_names(redis.call('HGET', PREFIX .. 'tasks', e.id) or '')
  e.text = entry_text(e)
  end_task(e, 'cancelled', now, '-', NO_RUN .. (task or '-'))
end
