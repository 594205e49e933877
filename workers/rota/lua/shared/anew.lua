-- The entry of a task of which nothing but the body is left, for its life of this number, nil where its id had no
-- others. Its counters are lost; what it may hold elsewhere is looked for.
-- with: place
-- keys     epitaphs keys
local function entry_anew(id, queue, kind, due, life, now)
  local has_key = redis.call('HEXISTS', PREFIX .. 'keys', id) == 1
  local has_account = redis.call('HEXISTS', PREFIX .. 'epitaphs', id) == 1
  local number = life and string.format('%.0f', life) or ''
  local flag = (has_key and 'u' or '') .. number .. (has_account and 'X' or '')
  local e = new_entry(id, queue, kind, due, now)
  if flag ~= '' then e.flag = flag end
  return e
end
