#!lua flags=allow-oom
-- Let claims go on, and ring: nobody rang while it was paused.
-- with: prefix doorbell
-- KEYS[1]  tasks
-- ARGV     queue
-- returns  1 when it was paused, else 0
local was = redis.call('SREM', PREFIX .. 'paused', ARGV[1])
redis.pcall('HDEL', PREFIX .. 'closed', ARGV[1])
if entries_in(ARGV[1]) > 0 then
  redis.call('SADD', PREFIX .. 'ready', ARGV[1])
  ring(ARGV[1])
elseif any_patterns then
  mark(ARGV[1]) -- claims that passed it over are to see that it is empty
end
return was
