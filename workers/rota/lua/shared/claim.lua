-- A claim moves entries from the heads of lanes to the in-flight list of an owner. A chooser is a function that decides
-- from which queue to claim, and how many entries: `next_share(taken) -> share, n`. `taken` is the number of entries
-- that were claimed from the previous share, 0 at first. If nothing else may be claimed, the chooser stores the new
-- order of the turns and returns nil.
-- with: entry doorbell counters incarnations condition tiers rotation turns bounds
-- keys     owners queue:* ready rotation tasks
local EXAMINE = 500 -- entries and marks per call

-- Claim entries for `request`, a record with these fields:
--   inflight   key of the owner's list
--   holding    number of entries in that list
--   awaited    entry that has to run alone, as a previous turn returned it, or ''
--   picks      number of times a queue is chosen
--   limit      entries to claim from one queue
--   limits     text with the limits of the queues that have their own
--   to_ring    queue or pattern -> whether to ring for it; written here
--   has_more   queue -> whether it has more entries; written here
-- Return the claimed entries; the claims (each entry with its body); the dropped entries; the number of picks left; why
-- the claim ended; and the entry that has to run alone.
local function claim_entries(request, domains, bounds, now)
  local left, several = request.picks, request.picks > 1
  local texts, claims, dropped, pushed, examined, status, quarantined = {}, {}, {}, 0, 0, 'ok', nil

  -- Read up to `most` entries from the head of a queue: first `delayed` of the `all_delayed` entries in the delayed
  -- lane, then entries of the ready lane. `is_whole`: the queue has no more entries. `passed`: number of entries that
  -- were processed; `taken` of them were claimed.
  local function read_head(queue, most)
    local all_delayed, found = length(delayed_lane(queue)), nil
    most = math.max(1, math.min(most, EXAMINE - examined))
    if all_delayed > 0 then found = redis.call('LRANGE', delayed_lane(queue), '0', most - 1) end
    local delayed = found and #found or 0
    if delayed < most then
      local ready = redis.pcall('LRANGE', ready_lane(queue), '0', most - delayed - 1)
      if ready.err then ready = {} end
      for i, text in ipairs(found and ready or {}) do found[delayed + i] = text end
      found = found or ready
    end
    local ids, suspicious = glance_at_all(found)
    examined = examined + #found
    return {
      texts = found, ids = ids, suspicious = suspicious, delayed = delayed, all_delayed = all_delayed,
      bodies = #ids > 0 and redis.call('HMGET', PREFIX .. 'tasks', unpack(ids)) or {}, is_whole = #found < most,
      passed = 0, taken = 0,
    }
  end

  local adopt_item -- made when the first legacy item is found

  -- Claim entries from a head until `most` are claimed. An entry with a crash or a loss on record has to run alone, so
  -- that another crash identifies the task that caused it. Such an entry ends the claim, and a worker that holds other
  -- tasks claims nothing else, so that it finishes them first.
  local function take(share, most)
    local head, passed, before, claimed = share.head, share.head.passed, #texts, #texts
    local found, ids, bodies, suspicious = head.texts, head.ids, head.bodies, head.suspicious
    for i = passed + 1, #found do
      if claimed == most or quarantined then break end
      local text, body, id = found[i], bodies[i], ids[i]
      if not body or body == '' or id == '' or suspicious[i] or any_incarnations then
        local live = body and id ~= ''
        -- A tombstone of an earlier task with this id was counted as cancelled when the id was used again.
        local gone = any_incarnations and id ~= '' and is_tombstone(id, flag_of(text), true)
        if live and not gone and suspicious[i] and body ~= '' then quarantined = text end
        if quarantined and claimed + request.holding > 0 then break end
        if gone or live and body == '' then
          -- The end was recorded when the task was cancelled.
          if not gone then remove_ended(id, flag_of(text), 'cancelled') end
          dropped[#dropped + 1] = text
          body = nil
        elseif not live then
          if not adopt_item then
            -- with: adopt
            adopt_item = function(item, into, kind) return adopt(item, (item_names(item)), into, kind, now, now) end
          end
          local e
          e, body = adopt_item(text, share.queue, i <= head.delayed and 'd' or 'i')
          text = entry_text(e)
        end
      end
      passed = i
      if body then
        claimed = claimed + 1
        texts[claimed], claims[2 * claimed - 1], claims[2 * claimed] = text, text, body
      end
    end
    head.passed, head.taken = passed, head.taken + claimed - before
  end

  -- Finish the claims from a queue: push the claimed entries to the owner's list, remove them from the lanes, and
  -- update the counters and the rate of the queue. `share.rest` becomes the number of entries left in the delayed lane,
  -- or if there are none, in the ready lane.
  local function close(share)
    local queue, head = share.queue, share.head
    share.head = nil
    if #texts > pushed then redis.call('RPUSH', request.inflight, unpack(texts, pushed + 1)) end
    pushed = #texts
    local delayed = math.min(head.passed, head.delayed)
    if delayed > 0 then redis.call('LTRIM', delayed_lane(queue), delayed, '-1') end
    if head.passed > delayed then redis.call('LTRIM', ready_lane(queue), head.passed - delayed, '-1') end
    local rest = head.all_delayed - delayed
    if rest == 0 then rest = head.is_whole and #head.texts - head.passed or length(ready_lane(queue)) end
    share.rest, request.has_more[queue] = rest, rest > 0
    if rest > 0 then
      request.to_ring[share.name] = true
    else
      redis.call('SREM', PREFIX .. 'ready', queue)
      if share.member then leave_turns(share.domain, share.member) end
    end
    if head.taken == 0 then return end
    count_later('running:' .. queue, head.taken)
    if bounds then write_counts() end
    if share.is_bounded then bounds.spend_rate(share, head.taken) end
    if share.condition then redis.pcall('HDEL', CLOSED, queue) end
    if several then decisions[queue] = nil end -- a condition may depend on the number of running tasks
  end

  -- Whether a worker that claimed from this queue may prefetch the next task. All of these must hold: so many tasks are
  -- left that no worker becomes idle; no higher tier exists, because its tasks would have to wait for two tasks instead
  -- of one; no limit applies, because a prefetched task would count towards it while it waits.
  local function is_backlogged(share)
    local first, for_each = domains[1], 4
    if several or quarantined or share.rest < for_each or share.domain ~= first.name then return false end
    for cap, interval, condition in string.gmatch(first.settings, '=%d+ (%d+) (%d+) %d+(:?)') do
      if cap ~= '0' or interval ~= '0' or condition ~= '' then return false end
    end
    return share.rest >= for_each * redis.call('ZCARD', PREFIX .. 'owners')
  end

  -- Claim up to n entries of a queue and return how many were claimed. If `share.ahead` is set, that many entries are
  -- read, and the head stays open while it has entries that may be claimed.
  local function claim_from(share, n)
    local before = #texts
    repeat
      share.head = share.head or read_head(share.queue, share.ahead or before + n - #texts)
      take(share, before + n)
      local is_used_up = share.head.passed == #share.head.texts or share.head.taken == share.room
      if is_used_up or not share.ahead then close(share) end
    until #texts == before + n or quarantined or share.rest == 0 or examined >= EXAMINE
    local taken = #texts - before
    if taken > 0 then left = left - (several and taken or 1) end
    if taken > 0 and is_backlogged(share) then status = 'backlogged' end
    return taken
  end

  -- Whether the claim continues: picks are left, and nothing prevents the next one.
  local function goes_on()
    if left > 0 and (quarantined or examined >= EXAMINE) then status = quarantined and 'quarantine' or 'more' end
    return left > 0 and status == 'ok'
  end

  -- Return how many entries of this queue to claim at once. If its starts are limited, the queue's own number in
  -- `limits` does not apply: entries that are claimed but not started yet would count towards the limit, and other
  -- workers could start fewer. If there are several picks, a queue without rivals may get all that are left.
  local function most_of(share, has_rivals)
    if several and has_rivals then return 1 end
    if several then return math.min(left, share.is_bounded and bounds.room_one_by_one(share) or left) end
    if share.is_bounded and bounds.depends_on_starts(share) then
      return math.min(math.max(request.limit, 1), (bounds.room(share)))
    end
    local own_at = value_of(request.limits, share.name)
    return math.max(own_at and tonumber(string.match(request.limits, '^%d+', own_at)) or request.limit, 1)
  end

  -- Return the chooser of a domain whose queues are known by name; they take turns. If there are several picks and
  -- several queues, more than one entry of each queue is read at once, so that each queue is read and written only
  -- once.
  local function by_rotation(domain)
    local indexes, shares, last, last_at = candidates(domain, bounds), {}, nil, nil
    local states, clock, turn
    if #indexes > 0 and domain.first < domain.last then states, clock, turn = states_at(domain, indexes) end

    local function write_turns()
      local changed = {}
      for _, share in pairs(shares) do
        if share.head then close(share) end
        if share.state then
          changed[#changed + 1] = domain.name .. ' ' .. share.queue
          changed[#changed + 1] = share.state
        end
      end
      if #changed == 0 then return end
      redis.call('HSET', PREFIX .. 'rotation', domain.name, state_of(clock, turn), unpack(changed))
    end

    return function(taken)
      if taken > 0 and states then
        local servings = several and taken or 1
        last.state, clock, turn = serve(states[last_at], taken / servings * last.cost, servings, clock, turn)
        states[last_at] = last.state
      end
      while #indexes > 0 and goes_on() do
        last_at = states and next_of(states, #indexes) or 1
        local index, has_rivals = indexes[last_at], #indexes > 1
        last = shares[index] or share_in(domain, ARGV[index])
        shares[index] = last
        if last.head and not has_rivals then close(last) end
        local is_known = last.rest and not last.head -- it was read before and is closed
        if not is_known or last.rest > 0 and not (last.is_bounded and not bounds.has_room(domain, index)) then
          if several and not last.head then
            last.ahead = has_rivals and math.ceil(2 * left / #indexes)
            last.room = has_rivals and last.is_bounded and bounds.room_one_by_one(last)
          end
          return last, most_of(last, has_rivals)
        end
        table.remove(indexes, last_at)
        if states then table.remove(states, last_at) end
      end
      if states then write_turns() end -- without states, no head is open
    end
  end

  -- Return the chooser of a domain with patterns. Its queues are stored in the order of their turns; see
  -- shared/turns.lua.
  local by_turn = any_patterns and function(domain)
    local last
    open_shut(domain, now)
    return function(taken)
      if taken > 0 then charge(last, taken, several and taken or 1) end
      while goes_on() do
        local marks, members = process_marks(domain), next_in_turn(domain, several and 2 or 1)
        if marks == 0 and not members[1] then break end
        local share = members[1] and share_at(domain, members[1])
        examined = examined + marks + 1
        local until_us = share and (paused(share.queue) and SHUT or bounds.shut_until(share))
        if until_us then shut(domain, members[1], until_us) end
        if share and not until_us then
          request.to_ring[share.name] = true -- other queues of the pattern may have entries
          last = share
          return share, most_of(share, #members + marks > 1)
        end
      end
      local opens_at = goes_on() and next_opening(domain)
      if opens_at then bounds.recheck_after(math.max(1, opens_at - now)) end
    end
  end

  -- A previous turn returned this entry as one that has to run alone. While it is first in its queue, nothing else is
  -- claimed. Once the owner holds nothing, it is claimed before all others, because it was next when it was found.
  if request.awaited ~= '' then
    local _, queue = names_in(request.awaited)
    local share = queue and share_of(domains, queue)
    local lane = queue and length(delayed_lane(queue)) > 0 and delayed_lane(queue) or ready_lane(queue or '')
    local is_first = length(lane) > 0 and redis.call('LINDEX', lane, 0) == request.awaited
    local is_open = share and not paused(queue) and not (share.is_bounded and bounds.shut_until(share))
    local taken = is_first and is_open and claim_from(share, 1) or 0
    if taken > 0 then charge(share, taken, 1) end
  end
  repeat
    for _, domain in ipairs(domains) do -- highest tier first
      if not goes_on() then break end
      local next_share = domain.has_patterns and by_turn(domain) or by_rotation(domain)
      local share, n = next_share(0)
      while share do share, n = next_share(claim_from(share, n)) end
    end
  until not goes_on() or not mark_unmarked(domains)
  return texts, claims, dropped, left, status, quarantined
end
