-- In-flight lists. Scripts also read the lists of other owners; a key of the wrong type counts as empty.
-- keys     inflight:* owners
local function lines_of(list)
  local lines = redis.pcall('LRANGE', list, 0, -1)
  return lines.err and {} or lines
end
local function id_of(line) return string.match(line, '^%S+') or '' end
local function ids_in(lines)
  local ids = {}
  for i, line in ipairs(lines) do ids[i] = id_of(line) end
  return ids
end

-- Return the owner that holds this id, and its entry. Only 500 owners are searched.
local function holder_of(id)
  for _, owner in ipairs(redis.call('ZRANGE', PREFIX .. 'owners', 0, 499)) do
    for _, line in ipairs(lines_of(PREFIX .. 'inflight:' .. owner)) do
      if id_of(line) == id then return owner, line end
    end
  end
end

-- Return all tasks in flight: id -> { owner, line }. Only 500 owners are searched.
local function all_held()
  local held = {}
  for _, owner in ipairs(redis.call('ZRANGE', PREFIX .. 'owners', 0, 499)) do
    for _, line in ipairs(lines_of(PREFIX .. 'inflight:' .. owner)) do
      held[id_of(line)] = { owner = owner, line = line }
    end
  end
  return held
end
