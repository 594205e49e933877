-- Looking for an end in the memory of ends: newest text first, as that is asked for most.
-- with: ends
local MOST_LOOKED = 3145728 -- bytes read a call, which takes milliseconds: who wants to know more asks again
local FOUND_FASTER = 4 -- than a text is read
local looked, texts, untold = 0, {}, nil -- texts by how many are newer

local function read_text(key)
  local text = redis.pcall('GET', key)
  if type(text) ~= 'string' then return false end
  looked = looked + #text
  return text
end

-- nil behind the oldest one, false for one that is gone or no text.
local function text_at(n)
  if texts[n] == nil then
    local number = n > 0 and redis.pcall('LINDEX', SEALED, -n)
    if n > 0 and type(number) ~= 'string' then return nil end
    texts[n] = read_text(n > 0 and sealed_key(number) or ENDS)
  end
  return texts[n]
end

-- Where the last line of an id begins behind its line feed.
local function last_place(text, id)
  local place, behind = 0, 0
  looked = looked + #text / FOUND_FASTER
  while behind do place, behind = behind, string.find(text, '\n' .. id .. ' ', behind + 1, true) end
  return place > 0 and place + 1 or nil
end

-- Since when an id is not to be told of.
local function untold_at(id)
  untold = untold or read_text(UNTOLD) or ''
  local place = last_place(untold, id)
  return place and tonumber(string.match(untold, ' (%d+)', place)) or 0
end

-- `HOW AT OWNER`, and when that was, of the block in which a place is.
local function block_of(text, place)
  local head, behind = 1, 1
  while behind and behind < place do head, behind = behind, string.find(text, '\n!', behind + 1, true) end
  local about, at = string.match(text, '^\n!%d+ (%l+ (%d+) [^\n]+)\n', head)
  return about, tonumber(at) or 0
end

-- A record, as in rota/protocol/outcome.py.
local function record_at(text, place, since)
  local about, at = block_of(text, place)
  local entry, account = string.match(text, '^([^\n]+)\n( [^\n]*)', place)
  return about and entry and at > since and about .. ' ' .. entry .. string.gsub(account, '\r', '\n') or nil
end

-- The record of an id's last end, if it is remembered and not behind the `from` newest texts. Or nil, and how many
-- texts were looked at when there are more.
local function record_of(id, from)
  if string.find(id, ' ', 1, true) then return nil end -- no id has one: more of an entry would be found than that
  local n, since = from, untold_at(id)
  while text_at(n) ~= nil do
    local text = texts[n]
    local place = text and last_place(text, id)
    if place then return record_at(text, place, since) end
    n = n + 1
    if text and since > 0 and select(2, block_of(text, 2)) <= since then return nil end
    if looked >= MOST_LOOKED then return nil, n end
  end
end
