-- Who waits for tasks. `waiters` has, by id, ` GOAL:CLIENT` for each client: `s` waits for the task's start, `e` for
-- its end. Clients block on lists of their own; what is pushed there, `how id`, only has them ask: see wait.lua. While
-- nobody waits there is no `tell_waiters`.
-- keys     replies:*
local REPLIES_MS = 60000 -- a list that nobody has emptied for so long is that of a client that is gone

local tell_waiters, wake
if any_waiters or any_members then
  -- A list begins to expire when it is begun: what keeps coming for a client that is gone does not keep it.
  local function wake_client(client, words)
    local replies = PREFIX .. 'replies:' .. client
    if redis.pcall('RPUSH', replies, unpack(words)) == #words then redis.call('PEXPIRE', replies, REPLIES_MS) end
  end
  wake = wake_client
end

if any_waiters then
  -- Wake who waits for these tasks, all of which started, or ended in the way that `how` says; who waits for a start
  -- waits no longer than for the end.
  tell_waiters = function(how, ids)
    local words_of, told = {}, {}
    for i, waiting in ipairs(redis.call('HMGET', WAITERS, unpack(ids))) do
      local left = how == 'started' and string.gsub(waiting or '', ' s:%w+', '') or ''
      for goal, client in string.gmatch(waiting or '', ' (%l):(%w+)') do
        if how ~= 'started' or goal == 's' then
          words_of[client] = words_of[client] or {}
          table.insert(words_of[client], how .. ' ' .. ids[i])
        end
      end
      if left ~= '' and left ~= waiting then redis.call('HSET', WAITERS, ids[i], left) end
      if waiting and left == '' then told[#told + 1] = ids[i] end
    end
    if #told > 0 then redis.call('HDEL', WAITERS, unpack(told)) end
    for client, words in pairs(words_of) do wake(client, words) end
  end
end
