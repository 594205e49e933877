-- A copy of the data for a transition that is inserted after this file, so that the transition changes nothing on the
-- server. The transition's writes are stored in the tables of this file. Its reads return the values in these tables,
-- or else those on the server. A command that is not handled here goes to the server, which refuses it if it writes,
-- because the script has `no-writes`. So no write is lost silently. `work` measures how much work the copy takes: the
-- number of arguments of commands, and of members that were searched. The file is a block, because Lua allows a
-- function only 200 locals.
local server, redis, work = redis, nil, 0
do
  -- Key -> field or member -> current value: a text; 0 or 1 for a member of a set; false if it is absent.
  local notes = {}
  local cut = {} -- list -> number of entries removed from its head
  local placed = {} -- sorted set -> { score, member } for all added members, in order

  -- Return a number as the text that the server would store.
  local function text_of(value) return type(value) == 'number' and string.format('%.17g', value) or value end

  local function note(key, field, value)
    notes[key] = notes[key] or {}
    notes[key][field] = value
  end

  local function look_up(query, command, key, field)
    local noted = notes[key] and notes[key][field]
    if noted ~= nil then return noted end
    return query(command, key, field)
  end

  local function look_up_all(query, command, key, ...)
    local replies, noted = query(command, key, ...), notes[key]
    if replies.err or not noted then return replies end
    for i, field in ipairs({ ... }) do
      if noted[field] ~= nil then replies[i] = noted[field] end
    end
    return replies
  end

  -- Store `value` for all these members of a set, and return how many members had a different value.
  local function mark_all(query, key, value, ...)
    local changed = 0
    for _, member in ipairs({ ... }) do
      if look_up(query, 'SISMEMBER', key, member) ~= value then changed = changed + 1 end
      note(key, member, value)
    end
    return changed
  end

  -- Sorted sets. Members are compared by their bytes; `<` would depend on the locale of the server.
  local function precedes(a, b)
    if a.score ~= b.score then return a.score < b.score end
    local one, other = a.member, b.member
    for i = 1, math.min(#one, #other) do
      local left, right = string.byte(one, i), string.byte(other, i)
      if left ~= right then return left < right end
    end
    return #one < #other
  end

  -- Return the index of an item among the added members, or the index at which it would be inserted.
  local function index_among(list, item)
    local first, behind = 1, #list + 1
    while first < behind do
      local middle = math.floor((first + behind) / 2)
      if precedes(list[middle], item) then first = middle + 1 else behind = middle end
    end
    return first
  end

  -- Set the score of a member, or remove the member if `score` is nil. Return whether the set had the member.
  local function move(query, key, member, score)
    local list, before = placed[key] or {}, look_up(query, 'ZSCORE', key, member)
    placed[key] = list
    local item = { score = tonumber(before or ''), member = member }
    local at = before and index_among(list, item)
    if at and list[at] and list[at].member == member then table.remove(list, at) end
    note(key, member, score and text_of(score) or false)
    if score then
      item = { score = tonumber(score), member = member }
      table.insert(list, index_among(list, item), item)
    end
    return before and true or false
  end

  -- Return the first `wanted` added members with scores in this range.
  local HIGHEST = string.char(255) -- sorts after all members
  local function placed_within(key, least, most, wanted)
    local list, found = placed[key] or {}, {}
    local open_least, open_most = string.match(least, '^%((.*)'), string.match(most, '^%((.*)')
    local at = index_among(list, { score = tonumber(open_least or least), member = open_least and HIGHEST or '' })
    local highest = tonumber(open_most or most)
    while #found < wanted and list[at] and (list[at].score < highest or list[at].score == highest and not open_most) do
      found[#found + 1] = list[at]
      at = at + 1
    end
    return found
  end

  -- Return up to `wanted` members from the server with scores in this range that were not changed here, as { score,
  -- member }. The number of changed members at the beginning of a range is remembered, so that later calls skip them.
  local PAGE = 20
  local passed_over = {}
  local function untouched(query, key, least, most, wanted)
    local found, range = {}, key .. ' ' .. least .. ' ' .. most
    local at = passed_over[range] or 0
    repeat
      local page = query('ZRANGE', key, least, most, 'BYSCORE', 'LIMIT', at, wanted + PAGE, 'WITHSCORES')
      for i = 1, #page, 2 do
        local is_noted = notes[key] and notes[key][page[i]] ~= nil
        if is_noted and #found == 0 then passed_over[range] = at + (i + 1) / 2 end
        if not is_noted then found[#found + 1] = { score = tonumber(page[i + 1]), member = page[i] } end
      end
      at, work = at + #page / 2, work + #page
    until #found >= wanted or #page < 2 * (wanted + PAGE)
    return found
  end

  -- ZRANGE KEY LEAST MOST BYSCORE LIMIT OFFSET COUNT [WITHSCORES] is the only form that transitions use.
  local function range_by_score(query, _, key, least, most, _, _, offset, count, with_scores)
    least, most = tostring(least), tostring(most)
    local found, rows = untouched(query, key, least, most, offset + count), {}
    for _, item in ipairs(placed_within(key, least, most, offset + count)) do
      table.insert(found, index_among(found, item), item)
    end
    for i = offset + 1, math.min(#found, offset + count) do
      rows[#rows + 1] = found[i].member
      if with_scores then rows[#rows + 1] = text_of(found[i].score) end
    end
    return rows
  end

  -- Ignore a write that no later claim reads. For example, the in-flight list stays empty, because each claim is made
  -- for a worker that holds no task.
  local function ignore() return 0 end

  local copied = {
    HGET = look_up, SISMEMBER = look_up, ZSCORE = look_up,
    HMGET = look_up_all, SMISMEMBER = look_up_all, ZMSCORE = look_up_all,
    RPUSH = ignore, XADD = ignore, PEXPIRE = ignore, UNLINK = ignore,
    SADD = function(query, _, key, ...) return mark_all(query, key, 1, ...) end,
    SREM = function(query, _, key, ...) return mark_all(query, key, 0, ...) end,
    HEXISTS = function(query, _, key, field) return look_up(query, 'HGET', key, field) and 1 or 0 end,
    HSET = function(_, _, key, ...)
      for i = 1, select('#', ...), 2 do note(key, (select(i, ...)), text_of((select(i + 1, ...)))) end
    end,
    HDEL = function(_, _, key, ...)
      for _, field in ipairs({ ... }) do note(key, field, false) end
      return select('#', ...) -- the count is right because transitions delete only fields that exist
    end,
    HINCRBY = function(query, _, key, field, by)
      local number = look_up(query, 'HGET', key, field) or '0'
      -- The server refuses such a text too.
      if not (type(number) == 'string' and string.find(number, '^%-?%d+$')) then return end
      note(key, field, string.format('%.0f', tonumber(number) + by))
    end,
    LLEN = function(query, _, key)
      local size = query('LLEN', key)
      return type(size) == 'number' and size - (cut[key] or 0) or size
    end,
    LRANGE = function(query, _, key, first, last)
      local gone = cut[key] or 0
      return query('LRANGE', key, first + gone, tonumber(last) < 0 and last or last + gone)
    end,
    -- Transitions trim lists only at the head.
    LTRIM = function(_, _, key, first) cut[key] = (cut[key] or 0) + first end,
    ZADD = function(query, _, key, ...)
      local only_there = select(1, ...) == 'XX'
      for i = only_there and 2 or 1, select('#', ...), 2 do
        local score, member = select(i, ...)
        if not only_there or look_up(query, 'ZSCORE', key, member) then move(query, key, member, score) end
      end
    end,
    ZREM = function(query, _, key, ...)
      local gone = 0
      for _, member in ipairs({ ... }) do
        if move(query, key, member, nil) then gone = gone + 1 end
      end
      return gone
    end,
    ZRANGE = range_by_score,
  }

  local function noting(query)
    return function(command, ...)
      work = work + select('#', ...)
      local how = copied[command]
      if how then return how(query, command, ...) end
      return query(command, ...)
    end
  end
  redis = { call = noting(server.call), pcall = noting(server.pcall) }
end
