-- A copy of what stands in the server: a transition that is run behind this file changes nothing. What it writes is
-- noted here, and what it reads comes from the notes where there are some, and else from the server. A command that is
-- not named here goes to the server, which refuses it in a script without writes if it would write: nothing is
-- forgotten silently.
-- `work` counts the arguments of commands, and what was looked through for them. In a block, as Lua knows no more than
-- 200 names of a script.
local server, redis, work = redis, nil, 0
do
  local notes = {} -- key -> field or member -> what stands there now: a text, 0 or 1 of a set, false for nothing
  local cut = {} -- list -> how many were taken from its head
  local placed = {} -- sorted set -> { score, member } of all that were put there, in order

  -- A number as the server would read it.
  local function text_of(value) return type(value) == 'number' and string.format('%.17g', value) or value end

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

  -- Note `value` of all these in a set; returns how many had another one.
  local function mark_all(ask, key, value, ...)
    local changed = 0
    for _, member in ipairs({ ... }) do
      if look(ask, 'SISMEMBER', key, member) ~= value then changed = changed + 1 end
      note(key, member, value)
    end
    return changed
  end

  -- Sorted sets. The order of members is that of their bytes; `<` would go by the server's language.
  local function precedes(a, b)
    if a.score ~= b.score then return a.score < b.score end
    local one, other = a.member, b.member
    for i = 1, math.min(#one, #other) do
      local left, right = string.byte(one, i), string.byte(other, i)
      if left ~= right then return left < right end
    end
    return #one < #other
  end

  -- Where it stands among what was placed, or would.
  local function place_among(list, item)
    local first, behind = 1, #list + 1
    while first < behind do
      local middle = math.floor((first + behind) / 2)
      if precedes(list[middle], item) then first = middle + 1 else behind = middle end
    end
    return first
  end

  -- Put a member to a score, or take it out without one; returns whether it had any.
  local function move(ask, key, member, score)
    local list, before = placed[key] or {}, look(ask, 'ZSCORE', key, member)
    placed[key] = list
    local item = { score = tonumber(before or ''), member = member }
    local at = before and place_among(list, item)
    if at and list[at] and list[at].member == member then table.remove(list, at) end
    note(key, member, score and text_of(score) or false)
    if score then
      item = { score = tonumber(score), member = member }
      table.insert(list, place_among(list, item), item)
    end
    return before and true or false
  end

  -- Of what was placed within these scores the first `wanted`.
  local HIGHEST = string.char(255) -- behind all members
  local function placed_within(key, least, most, wanted)
    local list, found = placed[key] or {}, {}
    local open_least, open_most = string.match(least, '^%((.*)'), string.match(most, '^%((.*)')
    local at = place_among(list, { score = tonumber(open_least or least), member = open_least and HIGHEST or '' })
    local highest = tonumber(open_most or most)
    while #found < wanted and list[at] and (list[at].score < highest or list[at].score == highest and not open_most) do
      found[#found + 1] = list[at]
      at = at + 1
    end
    return found
  end

  -- Of what stands in the server within these scores: up to `wanted` of which nothing is noted, as { score, member }.
  -- Those at the head of which something is are passed over once and for all.
  local PAGE = 20
  local passed_over = {}
  local function untouched(ask, key, least, most, wanted)
    local found, range = {}, key .. ' ' .. least .. ' ' .. most
    local at = passed_over[range] or 0
    repeat
      local page = ask('ZRANGE', key, least, most, 'BYSCORE', 'LIMIT', at, wanted + PAGE, 'WITHSCORES')
      for i = 1, #page, 2 do
        local is_noted = notes[key] and notes[key][page[i]] ~= nil
        if is_noted and #found == 0 then passed_over[range] = at + (i + 1) / 2 end
        if not is_noted then found[#found + 1] = { score = tonumber(page[i + 1]), member = page[i] } end
      end
      at, work = at + #page / 2, work + #page
    until #found >= wanted or #page < 2 * (wanted + PAGE)
    return found
  end

  -- ZRANGE KEY LEAST MOST BYSCORE LIMIT OFFSET COUNT [WITHSCORES]: the form that transitions use.
  local function range_by_score(ask, _, key, least, most, _, _, offset, count, with_scores)
    least, most = tostring(least), tostring(most)
    local found, rows = untouched(ask, key, least, most, offset + count), {}
    for _, item in ipairs(placed_within(key, least, most, offset + count)) do
      table.insert(found, place_among(found, item), item)
    end
    for i = offset + 1, math.min(#found, offset + count) do
      rows[#rows + 1] = found[i].member
      if with_scores then rows[#rows + 1] = text_of(found[i].score) end
    end
    return rows
  end

  -- Of what no claim reads again nothing is noted: the claims of an explanation are those of as many owners.
  local function let_go() return 0 end

  local copied = {
    HGET = look, SISMEMBER = look, ZSCORE = look, HMGET = look_all, SMISMEMBER = look_all, ZMSCORE = look_all,
    RPUSH = let_go, XADD = let_go, PEXPIRE = let_go, UNLINK = let_go,
    SADD = function(ask, _, key, ...) return mark_all(ask, key, 1, ...) end,
    SREM = function(ask, _, key, ...) return mark_all(ask, key, 0, ...) end,
    HEXISTS = function(ask, _, key, field) return look(ask, 'HGET', key, field) and 1 or 0 end,
    HSET = function(_, _, key, ...)
      for i = 1, select('#', ...), 2 do note(key, (select(i, ...)), text_of((select(i + 1, ...)))) end
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
      return ask('LRANGE', key, first + gone, tonumber(last) < 0 and last or last + gone)
    end,
    LTRIM = function(_, _, key, first) cut[key] = (cut[key] or 0) + first end, -- from the head: nothing else is cut
    ZADD = function(ask, _, key, ...)
      local only_there = select(1, ...) == 'XX'
      for i = only_there and 2 or 1, select('#', ...), 2 do
        local score, member = select(i, ...)
        if not only_there or look(ask, 'ZSCORE', key, member) then move(ask, key, member, score) end
      end
    end,
    ZREM = function(ask, _, key, ...)
      local gone = 0
      for _, member in ipairs({ ... }) do
        if move(ask, key, member, nil) then gone = gone + 1 end
      end
      return gone
    end,
    ZRANGE = range_by_score,
  }

  local function through(ask)
    return function(command, ...)
      work = work + select('#', ...)
      local how = copied[command]
      if how then return how(ask, command, ...) end
      return ask(command, ...)
    end
  end
  redis = { call = through(server.call), pcall = through(server.pcall) }
end
