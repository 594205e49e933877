-- Claim an entry that has to run alone. A previous turn returned it, and since then the worker has finished its other
-- tasks. claim.lua includes this file if there is such an entry.
-- with: entry doorbell tiers rotation
-- keys     queue:*

-- Claim the awaited entry if it is still the first of its queue and the queue is open. The entry is claimed before all
-- others, because it was next when the previous turn found it. If the owner still holds other entries, nothing is
-- claimed.
local function claim_awaited(claim)
  local _, queue = names_in(claim.awaited)
  local share = queue and share_of(claim.domains, queue)
  local lane = queue and length(delayed_lane(queue)) > 0 and delayed_lane(queue) or ready_lane(queue or '')
  local is_first = length(lane) > 0 and redis.call('LINDEX', lane, 0) == claim.awaited
  if not (is_first and share) or paused(queue) or share.is_bounded and claim.bounds:shut_until(share) then return end
  local taken = claim_from(claim, share, 1)
  if taken > 0 then charge(share, taken, 1) end
end
