-- A claim moves entries from the heads of lanes to the in-flight list of an owner. It is a record with these fields:
--   inflight     key of the owner's list
--   holding      number of entries in that list
--   awaited      entry that has to run alone, as a previous turn returned it, or ''
--   picks        number of times a queue is chosen
--   limit        entries to claim from one queue
--   limits       text with the limits of the queues for which `limit` does not apply
--   domains      the tiers
--   bounds       the limits on starts, see shared/bounds.lua; nil if no queue has limits
--   now          Redis time in microseconds
--   to_ring      queue or pattern -> whether to ring for it; the claim writes this
--   has_more     queue -> whether it has more entries; the claim writes this
-- `claim_entries` adds these:
--   texts        the claimed entries; the first `pushed` of them are in the list
--   claims       each entry with its body
--   dropped      entries that were removed because their tasks were cancelled
--   left         number of picks left
--   examined     number of entries and marks read so far
--   status       why the claim ended; 'ok' while it goes on
--   quarantined  the entry that has to run alone
-- with: doorbell tiers share_text rotation heads choosers
-- keys     owners

-- Whether a worker that claimed from this queue may prefetch the next task. Enough tasks must be left to keep all
-- workers busy. There must be no higher tier, because its tasks would have to wait for two tasks instead of one. No
-- limit may apply, because a prefetched task would count towards the limit while it waits.
local function is_backlogged(claim, share)
  local first, for_each = claim.domains[1], 4
  if claim.several or claim.quarantined or share.rest < for_each or share.domain ~= first.name then return false end
  if share.is_bounded or not limits_nothing(first.settings) then return false end
  return share.rest >= for_each * redis.call('ZCARD', PREFIX .. 'owners')
end

-- Claim up to n entries of a queue, and return how many were claimed. If `share.ahead` is set, that many entries are
-- read at once, and the head is kept for later picks while it has entries that may be claimed.
local function claim_from(claim, share, n)
  local texts = claim.texts
  local before = #texts
  repeat
    share.head = share.head or read_head(claim, share.queue, share.ahead or before + n - #texts)
    take(claim, share, before + n)
    local is_used_up = share.head.passed == #share.head.texts or share.head.taken == share.room
    if is_used_up or not share.ahead then close(claim, share) end
  until #texts == before + n or claim.quarantined or share.rest == 0 or claim.examined >= EXAMINE
  local taken = #texts - before
  if taken > 0 then claim.left = claim.left - (claim.several and taken or 1) end
  if taken > 0 and is_backlogged(claim, share) then claim.status = 'backlogged' end
  return taken
end

local function claim_entries(claim)
  claim.texts, claim.claims, claim.dropped, claim.pushed = {}, {}, {}, 0
  claim.left, claim.several, claim.examined, claim.status = claim.picks, claim.picks > 1, 0, 'ok'
  if claim.awaited ~= '' then
    -- with: awaited
    claim_awaited(claim)
  end
  repeat
    for _, domain in ipairs(claim.domains) do -- highest tier first
      if not goes_on(claim) then break end
      local chooser = domain.has_patterns and by_turn(claim, domain) or by_rotation(claim, domain)
      local share, n = chooser:next(claim, 0)
      while share do share, n = chooser:next(claim, claim_from(claim, share, n)) end
    end
  until not goes_on(claim) or not mark_unmarked(claim.domains)
  return claim
end
