-- Clients that wait for tasks. `waiters` maps an id to ` GOAL:CLIENT` for each client. GOAL is `s` for the start of the
-- task, or `e` for its end. Each client blocks on its own list. The text pushed there, `how id`, only makes the client
-- call `wait` again; see wait.lua. If no client waits, `notify_waiters` is nil.
-- keys     replies:*
local REPLIES_MS = 60000 -- milliseconds after which a client that has not read its list is assumed to have exited

local notify_waiters, wake
if any_waiters or any_members then
  -- A list gets its expiry with its first item, so later items do not keep the list of a client that has exited.
  local function wake_client(client, texts)
    local replies = PREFIX .. 'replies:' .. client
    if redis.pcall('RPUSH', replies, unpack(texts)) == #texts then redis.call('PEXPIRE', replies, REPLIES_MS) end
  end
  wake = wake_client
end

if any_waiters then
  -- Wake the clients that wait for these tasks. Either all of these tasks have started, or all have ended with the
  -- outcome `how`. The end of a task also wakes the clients that wait for its start.
  notify_waiters = function(how, ids)
    local texts_of, notified = {}, {}
    for i, waiting in ipairs(redis.call('HMGET', WAITERS, unpack(ids))) do
      local left = how == 'started' and string.gsub(waiting or '', ' s:%w+', '') or ''
      for goal, client in string.gmatch(waiting or '', ' (%l):(%w+)') do
        if how ~= 'started' or goal == 's' then
          texts_of[client] = texts_of[client] or {}
          table.insert(texts_of[client], how .. ' ' .. ids[i])
        end
      end
      if left ~= '' and left ~= waiting then redis.call('HSET', WAITERS, ids[i], left) end
      if waiting and left == '' then notified[#notified + 1] = ids[i] end
    end
    if #notified > 0 then redis.call('HDEL', WAITERS, unpack(notified)) end
    for client, texts in pairs(texts_of) do wake(client, texts) end
  end
end
