-- The head of a queue: the first entries of its lanes, as far as a claim has read them. A share has a head in
-- `share.head` while entries are claimed from it. `claim` is the record of shared/claim.lua.
-- with: entry doorbell counters turns
-- keys     queue:* ready tasks
local EXAMINE = 500 -- maximum number of entries and marks that a call examines

-- Read up to `most` entries from the head of a queue, first from the delayed lane and then from the ready lane.
-- `delayed` is how many of the `all_delayed` entries in the delayed lane were read. `is_whole` means that the queue has
-- no more entries. `passed` is the number of entries that were processed, and `taken` is the number of entries that
-- were claimed.
local function read_head(claim, queue, most)
  local all_delayed, found = length(delayed_lane(queue)), nil
  most = math.max(1, math.min(most, EXAMINE - claim.examined))
  if all_delayed > 0 then found = redis.call('LRANGE', delayed_lane(queue), '0', most - 1) end
  local delayed = found and #found or 0
  if delayed < most then
    local ready = redis.pcall('LRANGE', ready_lane(queue), '0', most - delayed - 1)
    if ready.err then ready = {} end
    for i, text in ipairs(found and ready or {}) do found[delayed + i] = text end
    found = found or ready
  end
  local ids, suspicious = glance_at_all(found)
  claim.examined = claim.examined + #found
  return {
    texts = found, ids = ids, suspicious = suspicious, delayed = delayed, all_delayed = all_delayed,
    bodies = #ids > 0 and redis.call('HMGET', PREFIX .. 'tasks', unpack(ids)) or {}, is_whole = #found < most,
    passed = 0, taken = 0,
  }
end

-- Claim entries from a head until the claim has `most` entries. An entry with a crash or a loss on record has to run
-- alone, so that another crash identifies the task that caused it. Such an entry ends the claim. A worker that holds
-- other tasks does not claim it yet, and claims nothing else, so that it finishes those tasks first.
local function take(claim, share, most)
  local head, texts, claims = share.head, claim.texts, claim.claims
  local found, ids, bodies, suspicious = head.texts, head.ids, head.bodies, head.suspicious
  local passed, before, claimed = head.passed, #texts, #texts
  for i = passed + 1, #found do
    if claimed == most or claim.quarantined then break end
    local text, body = found[i], bodies[i]
    if not body or body == '' or ids[i] == '' or suspicious[i] or any_incarnations then
      if not claim.check_entry then -- defined on first use, because most claims have only new entries
        -- with: unusual
        claim.check_entry = check_entry
      end
      text, body = claim:check_entry(share.queue, head, i)
      if claim.quarantined and claimed + claim.holding > 0 then break end
    end
    passed = i
    if body then
      claimed = claimed + 1
      texts[claimed], claims[2 * claimed - 1], claims[2 * claimed] = text, text, body
    end
  end
  head.passed, head.taken = passed, head.taken + claimed - before
end

-- Finish the claims from a queue: push the claimed entries to the owner's list, remove them from the lanes, and update
-- the counters and the rate of the queue. `share.rest` becomes the number of entries left in the delayed lane, or if
-- there are none, in the ready lane.
local function close(claim, share)
  local queue, head, texts, bounds = share.queue, share.head, claim.texts, claim.bounds
  share.head = nil
  if #texts > claim.pushed then redis.call('RPUSH', claim.inflight, unpack(texts, claim.pushed + 1)) end
  claim.pushed = #texts
  local delayed = math.min(head.passed, head.delayed)
  if delayed > 0 then redis.call('LTRIM', delayed_lane(queue), delayed, '-1') end
  if head.passed > delayed then redis.call('LTRIM', ready_lane(queue), head.passed - delayed, '-1') end
  local rest = head.all_delayed - delayed
  if rest == 0 then rest = head.is_whole and #head.texts - head.passed or length(ready_lane(queue)) end
  share.rest, claim.has_more[queue] = rest, rest > 0
  if rest > 0 then
    claim.to_ring[share.name] = true
  else
    redis.call('SREM', PREFIX .. 'ready', queue)
    if share.member then leave_turns(share.domain, share.member) end
  end
  if head.taken == 0 then return end
  count_later('running:' .. queue, head.taken)
  if not bounds then return end
  write_counts()
  bounds:note_starts(share, head.taken, claim.several)
end
