#!lua flags=allow-oom
-- Register owners before their processes exist, because an owner that is not registered can claim nothing. The script
-- creates the names of the owners. So if a duplicate of the call arrives late, it only registers owners that have no
-- process. The leases of these owners expire before they hold any task. The script also stores the length of the lease
-- in `pulse`, unless a longer lease is in use.
-- with: prefix clock numbers leases
-- KEYS[1]  tasks
-- ARGV
--   lease  length of the lease in milliseconds
--   slot   slot of each owner, as `node:slot`
-- keys     lives meta owners pulse tasks
-- errors   ROTA… while an import of the namespace is unfinished; nothing was changed
-- returns  an owner name per slot, `node:slot:nonce`
-- Invariant: no name is given twice. `lives`, from which the nonce comes, only grows; if it is not a valid number, it
-- continues from the current time in microseconds, which no counter has reached.
if redis.pcall('HGET', PREFIX .. 'meta', 'protocol') == 'import' then
  return redis.error_reply('ROTA this namespace is being imported: nothing can be claimed before `rota import` is done')
end
local now, lease = redis_now(), tonumber(ARGV[1]) * 1000
local expires = digits_of(now + lease)
redis.call('ZCARD', PREFIX .. 'owners')
local lives = redis.call('GET', PREFIX .. 'lives')
note_lease(lease, now)
if lives and not whole(lives) then redis.call('SET', PREFIX .. 'lives', digits_of(now)) end
local owners = {}
for i = 2, #ARGV do
  local slot = ARGV[i]
  owners[i - 1] = slot .. ':' .. digits_of(redis.call('INCR', PREFIX .. 'lives'))
  redis.call('ZADD', PREFIX .. 'owners', expires, owners[i - 1])
end
return owners
