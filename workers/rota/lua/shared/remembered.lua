-- Search the texts of ends.lua for the end of a task, newest text first, because most requests are about recent tasks.
-- with: ends
local MOST_READ = 3145728 -- bytes per call, which takes milliseconds; the client calls again to search further
local FOUND_FASTER = 4 -- finding an id in a text is this many times faster than reading the text
local bytes_read, texts, forgotten = 0, {}, nil -- the index in `texts` is the number of newer texts

local function read_text(key)
  local text = redis.pcall('GET', key)
  if type(text) ~= 'string' then return false end
  bytes_read = bytes_read + #text
  return text
end

-- Return the text with this number; nil if there are no more, false if it was deleted or has the wrong type.
local function text_at(n)
  if texts[n] == nil then
    local number = n > 0 and redis.pcall('LINDEX', SEALED, -n)
    if n > 0 and type(number) ~= 'string' then return nil end
    texts[n] = read_text(n > 0 and sealed_key(number) or ENDS)
  end
  return texts[n]
end

-- Return where the last line of an id begins, after its line feed.
local function last_position(text, id)
  local position, behind = 0, 0
  bytes_read = bytes_read + #text / FOUND_FASTER
  while behind do position, behind = behind, string.find(text, '\n' .. id .. ' ', behind + 1, true) end
  return position > 0 and position + 1 or nil
end

-- Return the time up to which the records of an id must not be returned; 0 if there is no such time.
local function forgotten_at(id)
  forgotten = forgotten or read_text(UNTOLD) or ''
  local position = last_position(forgotten, id)
  return position and tonumber(string.match(forgotten, ' (%d+)', position)) or 0
end

-- Return `HOW AT OWNER` of the block that contains this position, and its time AT.
local function block_of(text, position)
  local head, behind = 1, 1
  while behind and behind < position do head, behind = behind, string.find(text, '\n!', behind + 1, true) end
  local about, at = string.match(text, '^\n!%d+ (%l+ (%d+) [^\n]+)\n', head)
  return about, tonumber(at) or 0
end

-- Return the record of an end in the form that rota/protocol/outcome.py reads.
local function record_at(text, position, since)
  local about, at = block_of(text, position)
  local entry, run_record = string.match(text, '^([^\n]+)\n( [^\n]*)', position)
  return about and entry and at > since and about .. ' ' .. entry .. string.gsub(run_record, '\r', '\n') or nil
end

-- Return the record of an id's last end, if it is remembered. The `from` newest texts are skipped. If no record is
-- found, return nil. If there are more texts to search, also return the number of texts searched so far.
local function record_of(id, from)
  -- No id contains a space. With a space, the search could match more of an entry than its id.
  if string.find(id, ' ', 1, true) then return nil end
  local n, since = from, forgotten_at(id)
  while text_at(n) ~= nil do
    local text = texts[n]
    local position = text and last_position(text, id)
    if position then return record_at(text, position, since) end
    n = n + 1
    if text and since > 0 and select(2, block_of(text, 2)) <= since then return nil end
    if bytes_read >= MOST_READ then return nil, n end
  end
end
