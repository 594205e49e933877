-- Claiming: a queue is chosen by tier and rotation, and entries leave its head, as often as there are picks. `call` is one
-- turn: who asks and for how much, and what it has found; see turn.lua. With several picks each takes one entry, exactly as
-- so many turns of one pick would; what these would read and write again and again is read and written once: the head of a
-- lane, and what stands of a queue in the books.
-- A block, as Lua knows no more than 200 names of a script.
-- with: entry former bare ending adopt tiers rotation turns bounds
local function paused(queue)
  return any_paused and redis.call('SISMEMBER', PREFIX .. 'paused', queue) == 1
end

local claim
do
  local EXAMINE = 500 -- things that a call looks at
  local NONE = {}
  local LANES = { { of = delayed_lane, kind = 'd' }, { of = ready_lane, kind = 'i' } }

  -- How many entries of this queue one pick may take. Where starts are bounded they are claimed one at a time: unstarted
  -- entries would take the room of other workers.
  local function most_of(call, share)
    local limit, bounds = call.limit, call.bounds
    if share.is_bounded and bounds.go_by_starts(share) then return math.min(math.max(limit, 1), (bounds.room(share))) end
    local own_at = value_of(call.limits, share.name)
    return math.max(own_at and tonumber(string.match(call.limits, '^%d+', own_at)) or limit, 1)
  end

  -- What a call has read at the head of a queue's lanes, how far it took that, and how many entries it took in all. `room`: how
  -- many more picks may take before it is to be looked at what bounds the queue.
  local function source_of(call, share)
    local room = call.several and share.is_bounded and call.bounds.room_for_picks(share) or math.huge
    return { share = share, lane = 1, at = 0, texts = NONE, taken = 0, room = room }
  end

  local function cut(source)
    if source.at > 0 then redis.call('LTRIM', LANES[source.lane].of(source.share.queue), source.at, -1) end
    source.at, source.texts = 0, NONE
  end

  local function look_at(source, texts)
    local ids, suspicious = {}, {}
    for i, text in ipairs(texts) do
      local id, is_suspicious = glance(text)
      ids[i], suspicious[i] = id or '', is_suspicious
    end
    source.texts, source.ids, source.suspicious = texts, ids, suspicious
    source.bodies = redis.call('HMGET', PREFIX .. 'tasks', unpack(ids))
  end

  -- Read what comes next in the lanes; returns whether there is anything.
  local function read_on(call, source, most)
    cut(source)
    while LANES[source.lane] do
      if call.examined >= EXAMINE then
        call.halted = 'more'
        return false
      end
      local lane = LANES[source.lane].of(source.share.queue)
      local texts = redis.pcall('LRANGE', lane, 0, math.min(most, EXAMINE - call.examined) - 1)
      if not texts.err and #texts > 0 then
        call.examined = call.examined + #texts
        look_at(source, texts)
        return true
      end
      source.lane = source.lane + 1
    end
    return false
  end

  local function claim_entry(call, text, body)
    call.texts[#call.texts + 1] = text
    call.claims[#call.claims + 1] = text
    call.claims[#call.claims + 1] = body
  end

  -- Take what was read, until there are `most` entries; returns whether the queue may give more. An entry with a crash or a
  -- loss on record has to run alone, so that the guilty one is found without its neighbours: it ends the claim, and who holds
  -- anything else claims nothing more, so that its hands are empty for it in the end.
  local function take_read(call, source, most, first)
    local lane_texts, ids, bodies, suspicious = source.texts, source.ids, source.bodies, source.suspicious
    for i = source.at + 1, #lane_texts do
      if #call.texts == most then return true end
      local text, id, body = lane_texts[i], ids[i], bodies[i]
      local live = body and id ~= ''
      -- The shell of a former life was counted as cancelled when the next one began.
      local gone = any_former and id ~= '' and is_shell(id, flag_of(text), true)
      local alone = live and not gone and suspicious[i] and body ~= ''
      if alone and #call.texts + call.holding > 0 then
        if #call.texts == first then call.halted, call.alone = 'alone', text end
        return false
      end
      source.at = i
      if gone or live and body == '' then
        if not gone then take_off(id, flag_of(text), 'cancelled') end -- its end was noted when it was cancelled
        call.dropped[#call.dropped + 1] = text
      else
        if not live then
          local e
          e, body = adopt(text, (bare_names(text)), source.share.queue, LANES[source.lane].kind, call.now, call.now)
          text = entry_text(e)
        end
        claim_entry(call, text, body)
      end
      if alone then
        call.halted, call.alone = 'alone', text
        return false
      end
    end
    return true
  end

  -- One pick, or all that are left where no other queue could come between: `queues` is how many there are. Returns how many
  -- entries that took.
  local function pick(call, source, queues)
    local n, ahead = 1, 0
    if not call.several then
      n = most_of(call, source.share)
    else
      ahead = math.min(math.ceil(call.picks / queues), source.room)
      if queues == 1 then n = ahead end
    end
    local first = #call.texts
    local most, goes_on = first + n, true
    while goes_on and #call.texts < most and (source.at < #source.texts or read_on(call, source, math.max(n, ahead))) do
      goes_on = take_read(call, source, most, first)
    end
    local taken = #call.texts - first
    source.taken, source.room = source.taken + taken, source.room - taken
    call.picks = call.picks - (call.several and taken or math.min(taken, 1))
    return taken
  end

  -- Write down what was taken of a queue.
  local function close(call, source)
    local share, taken = source.share, source.taken
    if #call.texts > call.pushed then
      redis.call('RPUSH', call.inflight, unpack(call.texts, call.pushed + 1))
      call.pushed = #call.texts
    end
    cut(source)
    if entries_in(share.queue) == 0 then
      redis.call('SREM', PREFIX .. 'ready', share.queue)
      if share.place then leave_turns(share.domain, share.place) end
    else
      call.to_ring[share.name] = true
    end
    if taken == 0 then return end
    count('running:' .. share.queue, taken)
    if share.is_bounded then call.bounds.spend_rate(share, taken) end
    if share.condition then
      redis.pcall('HDEL', CLOSED, share.queue)
      if call.picks > 0 then verdicts[share.queue] = nil end -- what runs may decide it
    end
  end

  local function claim_from(call, share, queues)
    local source = source_of(call, share)
    local taken = pick(call, source, queues)
    close(call, source)
    if taken > 0 then charge(share, taken, call.several) end
  end

  local function first_in(lane)
    local text = redis.pcall('LINDEX', lane, 0)
    return type(text) == 'string' and text
  end

  -- It was told before that this entry has to be claimed alone. As long as that lies first in its queue it is next, when the
  -- hands are empty: its turn had come.
  local function claim_awaited(call, awaited)
    local _, queue = names_in(awaited)
    local share = queue and share_of(call.domains, queue)
    if not share or paused(queue) or share.is_bounded and call.bounds.shut_until(share) then return end
    if (first_in(delayed_lane(queue)) or first_in(ready_lane(queue))) == awaited then claim_from(call, share, 2) end
  end

  local function look_again(call, after)
    if call.wait == 0 or after < call.wait then call.wait = after end
  end

  -- Whether entries of the queue at this place may start now; if a rate limit or a condition opens later, `wait` says when.
  local function has_room(call, domain, place)
    if domain.settings == '' then return true end -- none of its queues has a cap, a rate limit or a condition
    local untill = call.bounds.shut_until(share_in(domain, ARGV[place]))
    if untill and untill < SHUT and entries_in(ARGV[place]) > 0 then look_again(call, untill - call.now) end
    return not untill
  end

  -- The places of a domain's queues that are marked ready and may be served now.
  local function candidates(call, domain)
    local places = {}
    for i, marked in ipairs(redis.call('SMISMEMBER', PREFIX .. 'ready', unpack(ARGV, domain.first, domain.last))) do
      local place = domain.first + i - 1
      if marked == 1 and not paused(ARGV[place]) and has_room(call, domain, place) then places[#places + 1] = place end
    end
    return places
  end

  local function claim_in_rotation(call, domain)
    local places = candidates(call, domain)
    if #places == 0 then return end
    local times, states = read_times(domain, places)
    local sources, served = {}, {}
    while #places > 0 and call.picks > 0 and not call.halted do
      local i = next_in_rotation(states)
      local place = places[i]
      local source = sources[place] or source_of(call, share_in(domain, ARGV[place]))
      sources[place] = source
      local taken = pick(call, source, #places)
      if taken > 0 then
        states[i] = serve(times, states[i], source.share, taken, call.several)
        served[place] = states[i]
      end
      if source.room < 1 then
        close(call, source)
        sources[place] = nil
      end
      if taken == 0 or source.room < 1 and not has_room(call, domain, place) then
        table.remove(places, i)
        table.remove(states, i)
      end
    end
    for _, source in pairs(sources) do close(call, source) end
    write_times(domain, times, served)
  end

  -- With patterns.
  local claim_in_turn
  if any_patterns then
    -- Claim from the queue at a place, or shut it.
    local function claim_at(call, domain, place, queues)
      local share = share_at(domain, place)
      if not share then return end
      local untill = paused(share.queue) and SHUT or call.bounds.shut_until(share)
      if untill then return shut(domain, place, untill) end
      claim_from(call, share, queues)
      call.to_ring[share.name] = true -- other queues of the pattern may have something
    end

    claim_in_turn = function(call, domain)
      local marks, places
      open_shut(domain, call.now)
      repeat
        marks = place_marks(domain)
        places = next_in_turn(domain, call.several and 2 or 1)
        call.examined = call.examined + marks + 1
        if places[1] then claim_at(call, domain, places[1], #places + marks) end
        if call.picks > 0 and call.examined >= EXAMINE then call.halted = call.halted or 'more' end
      until call.picks == 0 or call.halted or not places[1] and marks == 0
      local after = call.picks > 0 and not call.halted and next_opening(domain)
      if after then look_again(call, math.max(1, after - call.now)) end
    end
  end

  local function claim_in_order(call)
    for _, domain in ipairs(call.domains) do
      if domain.has_patterns then claim_in_turn(call, domain) else claim_in_rotation(call, domain) end
      if call.picks == 0 or call.halted then return end
    end
  end

  -- A bare push does not mark its queue ready, so look at the lanes once before the worker sleeps.
  local function mark_unmarked(call)
    local found = false
    each_queue(call.domains, function(queue)
      if entries_in(queue) > 0 and redis.call('SADD', PREFIX .. 'ready', queue) == 1 then
        if any_patterns then mark(queue) end
        found = true
      end
    end)
    return found
  end

  local function tell_started(call)
    if tell_waiters then tell_waiters('started', ids_in(call.texts)) end
    for i, text in ipairs(tell and call.texts or NONE) do
      tell('started', text, call.owner, task_in(call.claims[2 * i]), 1, 'lag_us', call.now - parse_entry(text).due)
    end
  end

  -- Claim what is next. `awaited`: the entry for which this owner empties its hands, or ''.
  claim = function(call, awaited)
    if awaited ~= '' then claim_awaited(call, awaited) end
    if not call.halted then claim_in_order(call) end
    if call.picks > 0 and not call.halted and mark_unmarked(call) then claim_in_order(call) end
    if #call.texts > 0 then tell_started(call) end
  end
end
