-- A chooser decides from which queue of a domain a claim takes entries, and how many: `chooser:next(claim, taken)`
-- returns a share and a number. `taken` is the number of entries that were claimed from the previous share, 0 at first.
-- If nothing else may be claimed from the domain, the chooser stores the new order of the turns and returns nil.
-- `claim` is the record of shared/claim.lua.
-- with: tiers rotation turns heads
-- keys     rotation

-- Whether the claim can continue, because picks are left and nothing prevents the next pick.
local function goes_on(claim)
  if claim.left <= 0 then return false end
  if claim.quarantined then
    claim.status = 'quarantine'
  elseif claim.examined >= EXAMINE then
    claim.status = 'more'
  end
  return claim.status == 'ok'
end

-- Return how many entries of this queue to claim at once. If its starts are limited, the queue's own number in `limits`
-- does not apply. Otherwise entries that are claimed but not started yet would count towards the limit, and other
-- workers could start fewer entries. If there are several picks and no other queue may be chosen, the queue may get all
-- picks that are left.
local function most_of(claim, share, has_rivals)
  local bounds, left, limit = claim.bounds, claim.left, claim.limit
  if claim.several and has_rivals then return 1 end
  if claim.several then return math.min(left, share.is_bounded and bounds:room_one_by_one(share) or left) end
  if share.is_bounded and bounds:depends_on_starts(share) then
    return math.min(math.max(limit, 1), (bounds:room(share)))
  end
  local own_at = value_of(claim.limits, share.name)
  return math.max(own_at and tonumber(string.match(claim.limits, '^%d+', own_at)) or limit, 1)
end

-- The chooser of a domain whose queues are known by name and take turns. If there are several picks and several queues,
-- more than one entry of each queue is read at once, so that each queue is read and written only once. Fields:
--   domain       the domain
--   indexes      indexes in ARGV of the queues that may be served
--   states       states of these queues, see shared/virtual_time.lua; nil if the domain has one queue
--   clock, turn  clock and turn of the domain
--   shares       index -> share of a queue that was chosen
--   last         the previous share; `share.at` is its position in `indexes`

local function charge_last(chooser, claim, taken)
  local last, servings = chooser.last, claim.several and taken or 1
  local before = chooser.states[last.at]
  last.state, chooser.clock, chooser.turn =
    serve(before, taken / servings * last.cost, servings, chooser.clock, chooser.turn)
  chooser.states[last.at] = last.state
end

local function write_turns(chooser, claim)
  local changed, domain_name = {}, chooser.domain.name
  for _, share in pairs(chooser.shares) do
    if share.head then close(claim, share) end
    if share.state then
      changed[#changed + 1] = domain_name .. ' ' .. share.queue
      changed[#changed + 1] = share.state
    end
  end
  if #changed == 0 then return end
  redis.call('HSET', PREFIX .. 'rotation', domain_name, state_of(chooser.clock, chooser.turn), unpack(changed))
end

local function next_in_rotation(chooser, claim, taken)
  local domain, indexes, states, bounds = chooser.domain, chooser.indexes, chooser.states, claim.bounds
  if taken > 0 and states then charge_last(chooser, claim, taken) end
  while #indexes > 0 and goes_on(claim) do
    local at = states and next_of(states, #indexes) or 1
    local index, has_rivals = indexes[at], #indexes > 1
    local share = chooser.shares[index] or share_in(domain, ARGV[index])
    chooser.shares[index] = share
    if share.head and not has_rivals then close(claim, share) end
    local is_known = share.rest and not share.head -- an earlier pick has read the head and finished with it
    if not is_known or share.rest > 0 and not (share.is_bounded and not bounds:has_room(domain, index)) then
      if claim.several and not share.head then
        share.ahead = has_rivals and math.ceil(2 * claim.left / #indexes)
        share.room = has_rivals and share.is_bounded and bounds:room_one_by_one(share)
      end
      chooser.last, share.at = share, at
      return share, most_of(claim, share, has_rivals)
    end
    table.remove(indexes, at)
    if states then table.remove(states, at) end
  end
  -- Without states there is at most one queue, and the claim has already finished with its head.
  if states then write_turns(chooser, claim) end
end

local function by_rotation(claim, domain)
  local indexes = candidates(domain, claim.bounds)
  local states, clock, turn
  if #indexes > 0 and domain.first < domain.last then states, clock, turn = states_at(domain, indexes) end
  return {
    next = next_in_rotation, domain = domain, indexes = indexes, shares = {},
    states = states, clock = clock, turn = turn, last = false,
  }
end

-- The chooser of a domain with patterns. Its queues are stored in the order of their turns; see shared/turns.lua.
local by_turn
if any_patterns then
  local function next_by_turn(chooser, claim, taken)
    local domain, bounds = chooser.domain, claim.bounds
    if taken > 0 then charge(chooser.last, taken, claim.several and taken or 1) end
    while goes_on(claim) do
      local marks, members = process_marks(domain), next_in_turn(domain, claim.several and 2 or 1)
      if marks == 0 and not members[1] then break end
      local share = members[1] and share_at(domain, members[1])
      claim.examined = claim.examined + marks + 1
      local until_us = share and (paused(share.queue) and SHUT or bounds:shut_until(share))
      if until_us then shut(domain, members[1], until_us) end
      if share and not until_us then
        claim.to_ring[share.name] = true -- other queues of the pattern may have entries
        chooser.last = share
        return share, most_of(claim, share, #members + marks > 1)
      end
    end
    local opens_at = goes_on(claim) and next_opening(domain)
    if opens_at then bounds:recheck_after(math.max(1, opens_at - claim.now)) end
  end

  by_turn = function(claim, domain)
    open_shut(domain, claim.now)
    return { next = next_by_turn, domain = domain, last = false }
  end
end
