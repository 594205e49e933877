-- Entries (see rota/protocol/entry.py). A text that no script could have written is not an entry, regardless of where
-- it is found. Names have the characters of rota/protocol/keys.py, times have at most 16 digits, and the four counters
-- have at most 18 digits together, so that a double is exact. The patterns are literals, because joining parts would
-- take time in every call. Only an entry in an in-flight list can have the mark `b` (see mark_started.lua).
local ENTRY =
  '^([%w_.:-]+) ([%w_.:-]+) ([idrptc]) ()(%d+) ()(%d+) ()(%d+) (%d+) (%d+) (%d+) ()([-bu%d%u]%d*b?%u?)$'
-- No entry is longer than this. A longer text, such as a giant legacy item, is not even matched against the pattern.
local LONGEST = 384
local TIME_WIDTH, COUNTERS_WIDTH = 17, 22 -- in characters, including the spaces after them

local function parse_entry(text)
  if #text > LONGEST then return nil end
  local id, queue, kind, due_at, due, ready_at, ready, counters_at, failures, crashes, losses, releases, flag_at, flag =
    string.match(text, ENTRY)
  if not id or ready_at - due_at > TIME_WIDTH or counters_at - ready_at > TIME_WIDTH
    or flag_at - counters_at > COUNTERS_WIDTH then return nil end
  return {
    id = id, queue = queue, kind = kind, due = tonumber(due), ready = tonumber(ready),
    failures = tonumber(failures), crashes = tonumber(crashes), losses = tonumber(losses),
    releases = tonumber(releases), flag = flag, text = text,
  }
end

-- Nearly every entry is new, and entries that were enqueued or promoted together differ only in their ids. So the part
-- after the id, the tail, is checked only once for consecutive entries that have the same tail. The check covers the
-- names in it. The positions of its spaces show that its times have 16 digits.
local NEW_TAIL = '^ ([0-9A-Za-z_.:-]+) [idrpt] [0-9]+ [0-9]+ 0 0 0 0 %-$'
local SPACE, DUE_AT, READY_AT = 32, -44, -27
local new_tail, new_queue -- tail and queue of the new entry that was checked last

-- Return where the tail of a new entry begins, or nil for any other text.
local function new_tail_at(text)
  local at = new_tail and string.find(text, new_tail, -#new_tail, true)
  if at then return at end
  at = string.find(text, ' ', 1, true)
  local queue = at and #text <= LONGEST and string.match(text, NEW_TAIL, at)
  if not queue or string.byte(text, DUE_AT) ~= SPACE or string.byte(text, READY_AT) ~= SPACE then return nil end
  new_tail, new_queue = string.sub(text, at), queue
  return at
end

-- Return what a claim needs to know about an entry: its id, and whether it has a crash or a loss on record. Return nil
-- for a text that is not an entry. The id of a new entry is not checked.
local function glance(text)
  local at = new_tail_at(text)
  if at then return string.sub(text, 1, at - 1), false end
  local e = parse_entry(text)
  if e then return e.id, e.crashes > 0 or e.losses > 0 end
end

-- Return the ids of several entries ('' for a text that is not an entry), and whether each has a crash or a loss on
-- record. All ids are checked together, because nearly always all of them are valid.
local NAMES = '^[0-9a-zA-Z_.:-]*$'
local function glance_at_all(texts)
  local ids, suspicious = {}, {}
  for i = 1, #texts do
    local id, is_suspicious = glance(texts[i])
    ids[i], suspicious[i] = id or '', is_suspicious
  end
  if not string.find(table.concat(ids), NAMES) then
    for i = 1, #ids do ids[i] = string.find(ids[i], NAMES) and ids[i] or '' end
  end
  return ids, suspicious
end

-- Return the flag of a text that is known to be an entry. `names_in` returns the id, the queue and the flag, which are
-- all that is needed when a task ends.
local function flag_of(text) return string.sub(text, -2) == ' -' and '-' or string.match(text, '(%S*)$') end
local function names_in(text)
  local at = new_tail_at(text)
  if at then return string.sub(text, 1, at - 1), new_queue, '-' end
  local first = string.find(text, ' ', 1, true)
  local second = first and string.find(text, ' ', first + 1, true)
  if not second then return nil end
  return string.sub(text, 1, first - 1), string.sub(text, first + 1, second - 1), flag_of(text)
end

local function entry_text(e)
  return string.format('%s %s %s %.0f %.0f %.0f %.0f %.0f %.0f %s', e.id, e.queue, e.kind, e.due, e.ready,
    e.failures, e.crashes, e.losses, e.releases, e.flag)
end
