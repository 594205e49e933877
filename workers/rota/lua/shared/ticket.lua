-- Tickets, `queue kind failures crashes losses releases flag` and what some delayed tasks have behind it: `^` for one
-- that goes to the head of its lane, or since when a throttled one is due. As of entries, a text that could not have
-- been written here is none; no ticket has the mark of what has begun.
-- with: entry
local TICKET = '^([%w_.:-]+) ([idrptc]) ()(%d+) (%d+) (%d+) (%d+) ()([-u%d%u]%d*%u?)()( ?)(%^?)(%d*)$'

local function parse_ticket(id, text)
  if not text or #text > LONGEST then return nil end
  local queue, kind, counters_at, failures, crashes, losses, releases, flag_at, flag, more_at, space, front, scheduled =
    string.match(text, TICKET)
  if not queue or flag_at - counters_at > COUNTERS_WIDTH or #text - more_at >= TIME_WIDTH
    or (space == '') ~= (front .. scheduled == '') then return nil end
  return {
    id = id, queue = queue, kind = kind, failures = tonumber(failures), crashes = tonumber(crashes),
    losses = tonumber(losses), releases = tonumber(releases), flag = flag,
    front = front ~= '', scheduled = tonumber(scheduled),
  }
end

local function ticket_text(e)
  return string.format('%s %s %.0f %.0f %.0f %.0f %s', e.queue, e.kind, e.failures, e.crashes, e.losses, e.releases,
    e.flag)
end
