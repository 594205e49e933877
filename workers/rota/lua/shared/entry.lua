-- Entries (see rota/protocol/entry.py) and tickets, `queue kind failures crashes losses releases flag`.
local ENTRY = '^(%S+) (%S+) ([idrp]) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%S+)$'
local LONGEST = 1024 -- no entry is longer; a giant bare item must not be tried against the pattern
local TICKET = '^(%S+) ([idrp]) (%d+) (%d+) (%d+) (%d+) (%S+)$'

local function parse_entry(text)
  if #text > LONGEST then return nil end
  local id, queue, kind, due, ready, failures, crashes, losses, releases, flag = string.match(text, ENTRY)
  if not id then return nil end
  return {
    id = id, queue = queue, kind = kind, due = tonumber(due), ready = tonumber(ready),
    failures = tonumber(failures), crashes = tonumber(crashes), losses = tonumber(losses),
    releases = tonumber(releases), flag = flag, text = text,
  }
end

-- The same, no more than a claim needs: the id, and whether a crash or a loss is on record.
local GLANCE = '^(%S+) %S+ [idrp] %d+ %d+ %d+ (%d+) (%d+) %d+ %S+$'
local function glance(text)
  if #text > LONGEST then return nil end
  local id, crashes, losses = string.match(text, GLANCE)
  return id, crashes ~= '0' or losses ~= '0'
end

-- And no more than ending a task needs, of a text that is known to be an entry.
local function parse_names(text)
  local id, queue, flag = string.match(text, '^(%S+) (%S+) .* (%S+)$')
  return { id = id, queue = queue, flag = flag }
end

local function entry_text(e)
  return string.format('%s %s %s %.0f %.0f %.0f %.0f %.0f %.0f %s', e.id, e.queue, e.kind, e.due, e.ready,
    e.failures, e.crashes, e.losses, e.releases, e.flag)
end

local function parse_ticket(id, text)
  local queue, kind, failures, crashes, losses, releases, flag = string.match(text or '', TICKET)
  if not queue then return nil end
  return {
    id = id, queue = queue, kind = kind, failures = tonumber(failures), crashes = tonumber(crashes),
    losses = tonumber(losses), releases = tonumber(releases), flag = flag,
  }
end

local function ticket_text(e)
  return string.format('%s %s %.0f %.0f %.0f %.0f %s', e.queue, e.kind, e.failures, e.crashes, e.losses, e.releases,
    e.flag)
end
