-- The pollers that sweep for the fleet. A fleet of hundreds of nodes has hundreds of pollers. If each of them swept,
-- the cost for the server would grow with their number. So up to SWEEPERS pollers sweep, and the others are reserves.
-- `pulse` has the names of the sweeping pollers, until when each of them keeps its place, and how many places are
-- free. A reserve reads `pulse` every 4 s, and sweeps if a place is free or nobody has swept since it last read. It
-- gets the place of a poller that has not swept for SWEEPS_FOR. So a reserve sweeps after at most 9 s, even if all
-- sweeping pollers die at once. This must be less than half a lease, because after half a lease without a sweep, no
-- owner is reaped for one more lease. Therefore every poller with a lease shorter than LEAST_LEASE sweeps.
-- with: numbers
-- keys     pulse
local SWEEPERS, SWEEPS_FOR, LEAST_LEASE = 8, 5 * 1000000, 18 * 1000000

-- Return the pollers that have a place: a list of their names, and the end of each place by name.
local function sweepers_in(text, now)
  local list, until_by_name = {}, {}
  for name, ends in string.gmatch(text or '', '(%S+) (%d+)') do
    local until_us = whole(ends) or 0
    if until_us > now and until_us <= now + SWEEPS_FOR then
      list[#list + 1], until_by_name[name] = name, until_us
    end
  end
  return list, until_by_name
end

-- Give a poller a place among the sweeping pollers, or renew its place. Return false if all places are taken. `text` is
-- the list in `pulse`.
local function takes_place(text, name, lease, now)
  if name == '' or lease < LEAST_LEASE then return true end
  local list, until_by_name = sweepers_in(text, now)
  if not until_by_name[name] then
    if #list >= SWEEPERS then return false end
    list[#list + 1] = name
  end
  until_by_name[name] = now + SWEEPS_FOR
  for i, each in ipairs(list) do list[i] = each .. ' ' .. digits_of(until_by_name[each]) end
  redis.call('HSET', PREFIX .. 'pulse', 'sweepers', table.concat(list, ' '), 'free', SWEEPERS - #list)
  return true
end
