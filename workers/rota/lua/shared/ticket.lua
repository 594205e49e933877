-- Tickets: `queue kind failures crashes losses releases flag`, for delayed and dead tasks. Some delayed tasks have one
-- more field: `^` for a task that goes to the head of its lane, or the due time of a throttled task. A text that no
-- script could have written is not a ticket. No ticket has the mark `b`.
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
