-- In-flight lists are read by people's calls and other owners' too: one that is no list must not stop them.
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

-- The owner that holds this id, and its entry's line. Looks at 500 owners.
local function holder_of(id)
  for _, owner in ipairs(redis.call('ZRANGE', PREFIX .. 'owners', 0, 499)) do
    for _, line in ipairs(lines_of(PREFIX .. 'inflight:' .. owner)) do
      if id_of(line) == id then return owner, line end
    end
  end
end

-- All that these hold: id -> { owner, line }.
local function all_held()
  local held = {}
  for _, owner in ipairs(redis.call('ZRANGE', PREFIX .. 'owners', 0, 499)) do
    for _, line in ipairs(lines_of(PREFIX .. 'inflight:' .. owner)) do
      held[id_of(line)] = { owner = owner, line = line }
    end
  end
  return held
end
