#!lua flags=allow-oom
-- Begin lives. The names are made here, so that a late copy of the call makes owners that nobody bears: they expire
-- empty. Called before the process exists; without it a claim is refused.
-- with: prefix clock numbers leases
-- KEYS[1]  tasks
-- ARGV
--   lease  ms
--   place  each, as `node:slot`
-- keys     lives owners pulse tasks
-- returns  an owner a place, `node:slot:life`
-- Invariant: no name is given twice.
local now, lease = redis_now(), tonumber(ARGV[1]) * 1000
local expires = digits_of(now + lease)
redis.call('ZCARD', PREFIX .. 'owners')
local lives = redis.call('GET', PREFIX .. 'lives')
note_lease(lease, now)
-- What is no count of lives is replaced by one that no count has come to yet: a name is never used again.
if lives and not whole(lives) then redis.call('SET', PREFIX .. 'lives', digits_of(now)) end
local owners = {}
for i = 2, #ARGV do
  local place = ARGV[i]
  owners[i - 1] = place .. ':' .. digits_of(redis.call('INCR', PREFIX .. 'lives'))
  redis.call('ZADD', PREFIX .. 'owners', expires, owners[i - 1])
end
return owners
