-- A copy of what stands in the server: a transition that is run behind this file changes nothing. What it writes is
-- noted here, and what it reads comes from the notes where there are some, and else from the server. A command that is
-- not named here goes to the server, which refuses it in a script without writes if it would write: so nothing can be
-- forgotten silently.
local server, notes, cut = redis, {}, {} -- key -> field or member -> what is noted; key -> entries taken from its head
local work = 0 -- arguments of commands: what an explanation is bounded by

local function note(key, field, value)
  notes[key] = notes[key] or {}
  notes[key][field] = value
end

local function look(ask, command, key, field)
  local noted = notes[key] and notes[key][field]
  if noted ~= nil then return noted end
  return ask(command, key, field)
end

local function look_all(ask, command, key, ...)
  local answers, noted = ask(command, key, ...), notes[key]
  if answers.err or not noted then return answers end
  for i, field in ipairs({ ... }) do
    if noted[field] ~= nil then answers[i] = noted[field] end
  end
  return answers
end

-- Note `value` of all these; returns how many had another one, of a command that answers 0 or 1.
local function mark_all(ask, command, key, value, ...)
  local changed = 0
  for _, field in ipairs({ ... }) do
    if look(ask, command, key, field) ~= value then changed = changed + 1 end
    note(key, field, value)
  end
  return changed
end

-- Of what no claim reads again nothing is noted: the claims of an explanation are those of as many owners.
local function let_go() return 0 end

local copied = {
  HGET = look, SISMEMBER = look, ZSCORE = look, HMGET = look_all, SMISMEMBER = look_all,
  RPUSH = let_go, XADD = let_go, PEXPIRE = let_go, UNLINK = let_go,
  SADD = function(ask, _, key, ...) return mark_all(ask, 'SISMEMBER', key, 1, ...) end,
  SREM = function(ask, _, key, ...) return mark_all(ask, 'SISMEMBER', key, 0, ...) end,
  HEXISTS = function(ask, _, key, field) return look(ask, 'HGET', key, field) and 1 or 0 end,
  ZADD = function(_, _, key, score, member) note(key, member, score) end,
  HSET = function(_, _, key, ...)
    for i = 1, select('#', ...), 2 do note(key, (select(i, ...)), tostring((select(i + 1, ...)))) end
  end,
  HDEL = function(_, _, key, ...)
    for _, field in ipairs({ ... }) do note(key, field, false) end
    return select('#', ...) -- only what was there is taken off the books
  end,
  HINCRBY = function(ask, _, key, field, by)
    local number = look(ask, 'HGET', key, field) or '0'
    if not (type(number) == 'string' and string.find(number, '^%-?%d+$')) then return end -- the server refuses it too
    note(key, field, string.format('%.0f', tonumber(number) + by))
  end,
  LLEN = function(ask, _, key)
    local size = ask('LLEN', key)
    return type(size) == 'number' and size - (cut[key] or 0) or size
  end,
  LRANGE = function(ask, _, key, first, last)
    local gone = cut[key] or 0
    return ask('LRANGE', key, first + gone, last < 0 and last or last + gone)
  end,
  LTRIM = function(_, _, key, first) cut[key] = (cut[key] or 0) + first end, -- from the head: nothing else is cut
}

local function through(ask)
  return function(command, ...)
    work = work + select('#', ...)
    local how = copied[command]
    if how then return how(ask, command, ...) end
    return ask(command, ...)
  end
end
local redis = { call = through(server.call), pcall = through(server.pcall) }
