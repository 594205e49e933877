-- Clients that wait for tasks. `waiters` maps an id to ` GOAL:CLIENT` for each client: `s` for the start of the task,
-- `e` for its end. Each client blocks on its own list. The text pushed there, `how id`, only makes it call `wait`
-- again; see wait.lua. If no client waits, `tell_waiters` is nil.
-- keys     replies:*
local REPLIES_MS = 60000 -- after that, the client of a list that was not read counts as gone

local tell_waiters, wake
if any_waiters or any_members then
  -- A list gets its expiry with its first item, so that later items for a client that is gone do not keep it.
  local function wake_client(client, words)
    local replies = PREFIX .. 'replies:' .. client
    if redis.pcall('RPUSH', replies, unpack(words)) == #words then redis.call('PEXPIRE', replies, REPLIES_MS) end
  end
  wake = wake_client
end

if any_waiters then
  -- Wake the clients that wait for these tasks. All of the tasks have started, or ended in the way that `how` says. The
  -- end of a task also wakes clients that wait for its start.
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
