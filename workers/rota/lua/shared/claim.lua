-- A claim moves entries from the head of lanes to the list of their owner. A chooser says of which queue the next ones
-- are, and how many: it is a function that returns a share and a number, or nil when nothing more may be claimed.
-- with: entry doorbell books bare former condition tiers rotation turns bounds
-- keys     owners queue:* ready rotation tasks
local EXAMINE = 500 -- entries and marks a call

-- Claim what may be claimed for `ask`, a record of `inflight`, `holding` (how many entries that list has), `awaited`
-- (the entry that the turn before found to have to run alone, or ''), `picks`, `limit` (entries a claim), `limits` (of
-- queues that have their own), and by queue `to_ring` and `has_more`, which are written here. Returns the texts
-- claimed, the claims (each text with its body), what was dropped, how many picks are left, why it ended, and the entry
-- that has to run alone.
local function claim_entries(ask, domains, bounds, now)
  local left, several = ask.picks, ask.picks > 1
  local texts, claims, dropped, examined, word, alone = {}, {}, {}, 0, 'ok', nil

  -- What lies at the head of a queue: first `delayed` texts of the delayed lane, of `all_delayed` there, then of the
  -- other. `is_whole`: the queue has no more.
  local function read_head(queue, most)
    local all_delayed, found = length(delayed_lane(queue)), nil
    if all_delayed > 0 then found = redis.call('LRANGE', delayed_lane(queue), '0', most - 1) end
    local delayed = found and #found or 0
    if delayed < most then
      local ready = redis.pcall('LRANGE', ready_lane(queue), '0', most - delayed - 1)
      if ready.err then ready = {} end
      for _, text in ipairs(found and ready or {}) do found[#found + 1] = text end
      found = found or ready
    end
    local ids, suspicious = glance_at_all(found)
    return {
      texts = found, ids = ids, suspicious = suspicious, delayed = delayed, all_delayed = all_delayed,
      bodies = #ids > 0 and redis.call('HMGET', PREFIX .. 'tasks', unpack(ids)) or {}, is_whole = #found < most,
    }
  end

  -- Take so many of a head off their lanes; returns how many entries are left: in the delayed lane, or else in the
  -- other.
  local function cut(queue, head, taken)
    local delayed = math.min(taken, head.delayed)
    if delayed > 0 then redis.call('LTRIM', delayed_lane(queue), delayed, '-1') end
    if taken > delayed then redis.call('LTRIM', ready_lane(queue), taken - delayed, '-1') end
    if head.all_delayed > delayed then return head.all_delayed - delayed end
    return head.is_whole and #head.texts - taken or length(ready_lane(queue))
  end

  local adopt_bare -- what adopts bare items is made when the first one is met

  -- Claim what is in a head; returns how many leave their lanes, and whether one came that has to run alone: an entry
  -- with a crash or a loss on record does, so that the guilty one is found without its neighbours. It ends the claim,
  -- and a worker that holds others claims nothing more, so that its hands will be empty for it.
  local function take_head(queue, head)
    local taken = #texts
    for i = 1, #head.texts do
      local text, body, id = head.texts[i], head.bodies[i], head.ids[i]
      if not body or body == '' or id == '' or head.suspicious[i] or any_former then
        local live = body and id ~= ''
        -- The shell of a former life was counted as cancelled when the next one began.
        local gone = any_former and id ~= '' and is_shell(id, flag_of(text), true)
        if live and not gone and head.suspicious[i] and body ~= '' then alone = text end
        if alone and taken + ask.holding > 0 then return i - 1, true end
        if gone or live and body == '' then
          if not gone then take_off(id, flag_of(text), 'cancelled') end -- its end was noted when it was cancelled
          dropped[#dropped + 1] = text
          body = nil
        elseif not live then
          if not adopt_bare then
            -- with: adopt
            adopt_bare = adopt
          end
          local e
          e, body = adopt_bare(text, (bare_names(text)), queue, i <= head.delayed and 'd' or 'i', now, now)
          text = entry_text(e)
        end
      end
      if body then
        taken = taken + 1
        texts[taken], claims[2 * taken - 1], claims[2 * taken] = text, text, body
      end
      if alone then return i, true end
    end
    return #head.texts, false
  end

  -- Claim until `most` are claimed, the queue is empty, or enough was looked at; returns how many are left.
  local function take(queue, most)
    local rest, popped, is_over
    while not is_over and rest ~= 0 and #texts < most and examined < EXAMINE do
      local head = read_head(queue, math.min(most - #texts, EXAMINE - examined))
      popped, is_over = take_head(queue, head)
      rest, examined = cut(queue, head, popped), examined + #head.texts
    end
    return rest or entries_in(queue)
  end

  -- Entries of a queue were claimed, and so many are left: what any claim writes of that.
  local function note(share, taken, rest)
    local queue = share.queue
    ask.has_more[queue] = rest > 0
    if rest > 0 then
      ask.to_ring[share.name] = true
    else
      redis.call('SREM', PREFIX .. 'ready', queue)
      if share.place then leave_turns(share.domain, share.place) end
    end
    if taken == 0 then return end
    count_later('running:' .. queue, taken)
    if share.is_bounded then bounds.spend_rate(share, taken) end
    if share.condition then redis.pcall('HDEL', CLOSED, queue) end
    if several then verdicts[queue] = nil end -- what runs may decide a condition
  end

  -- Whether a worker that has claimed from here may claim the next task before it runs this one: so much is left that
  -- nobody is idle for it, nothing ranks above that would have to wait for both, and what is bounded loses no room to a
  -- task that waits.
  local function is_plenty(share, rest)
    local first, for_each = domains[1], 4
    if several or alone or rest < for_each or share.domain ~= first.name then return false end
    for cap, interval, condition in string.gmatch(first.settings, '=%d+ (%d+) (%d+) %d+(:?)') do
      if cap ~= '0' or interval ~= '0' or condition ~= '' then return false end
    end
    return rest >= for_each * redis.call('ZCARD', PREFIX .. 'owners')
  end

  -- Claim up to n entries of a queue. That of a plan is taken off its lane as the plan closes.
  local function claim_from(share, n)
    local head, before = share.head, #texts
    if head then
      head.taken, left = head.taken + 1, left - 1
      texts[before + 1], claims[2 * before + 1] = head.texts[head.taken], head.texts[head.taken]
      claims[2 * before + 2] = head.bodies[head.taken]
      return
    end
    local rest = take(share.queue, before + n)
    local taken = #texts - before
    note(share, taken, rest)
    if taken == 0 then return end
    if is_plenty(share, rest) then word = 'plenty' end
    left = left - (several and taken or 1)
    redis.call('RPUSH', ask.inflight, unpack(texts, before + 1))
    if bounds then write_counts() end
    charge(share, taken, several and taken or 1, share.states)
  end

  -- Whether this call goes on: picks are left, and nothing prevents the next.
  local function goes_on()
    if left > 0 and (alone or examined >= EXAMINE) then word = alone and 'alone' or 'more' end
    return left > 0 and word == 'ok'
  end

  -- How many entries of this queue to claim at once, where any may start. Where starts are bounded they are claimed one
  -- at a time: unstarted entries would take the room of other workers. All picks that are left may go to a queue that
  -- has no rivals.
  local function most_of(share, has_rivals)
    if several and has_rivals then return 1 end
    if several then return math.min(left, share.is_bounded and bounds.room_one_by_one(share) or left) end
    if share.is_bounded and bounds.go_by_starts(share) then
      return math.min(math.max(ask.limit, 1), (bounds.room(share)))
    end
    local own_at = value_of(ask.limits, share.name)
    return math.max(own_at and tonumber(string.match(ask.limits, '^%d+', own_at)) or ask.limit, 1)
  end

  -- The chooser of a domain whose queues are known by name: they take turns.
  local function by_rotation(domain)
    local places, last, last_at = candidates(domain, bounds), nil, nil
    -- Those that are left: a queue from which was claimed is none of them when it is empty, or shut.
    local function places_left()
      local is_empty = last and not ask.has_more[last.queue]
      local is_shut = last and not is_empty and last.is_bounded and not bounds.has_room(domain, places[last_at])
      if is_empty or is_shut then table.remove(places, last_at) end
      last = nil
      return places
    end
    local function next_share()
      if #places_left() == 0 then return nil end
      local states = #places > 1 and states_at(domain, places)
      last_at = states and next_of(states, #places) or 1
      last = share_in(domain, ARGV[places[last_at]])
      if states then last.states = { states[last_at], states[#places + 1] } end
      return last, most_of(last, #places > 1)
    end
    return next_share, places_left
  end

  -- The chooser of a domain with patterns: its queues are kept in the order of their turns, see shared/turns.lua.
  local by_turn = any_patterns and function(domain)
    open_shut(domain, now)
    return function()
      repeat
        local marks = place_marks(domain)
        local places = next_in_turn(domain, several and 2 or 1)
        local share = places[1] and share_at(domain, places[1])
        examined = examined + marks + 1
        local untill = share and (paused(share.queue) and SHUT or bounds.shut_until(share))
        if untill then shut(domain, places[1], untill) end
        if share and not untill then
          ask.to_ring[share.name] = true -- other queues of the pattern may have something
          return share, most_of(share, #places + marks > 1)
        end
      until not goes_on() or not places[1] and marks == 0
      local opens_at = goes_on() and next_opening(domain)
      if opens_at then bounds.look_again(math.max(1, opens_at - now)) end
    end
  end

  -- Claim of the queues that a chooser names, as long as the call goes on.
  local function claim_by(choose)
    local share, n = choose()
    while share do
      claim_from(share, n)
      if not goes_on() then return end
      share, n = choose()
    end
  end

  local claim_several
  if several then
    -- The chooser of several picks among such queues: it reads the head of each, and takes turns among these, so that
    -- each queue is read and written once. Only ordinary entries are claimed so: live ones, without a crash or a loss
    -- on record. It ends where another one comes. Returns also what writes down what was claimed, and how many entries
    -- were looked at.
    local function by_plan(domain, places)
      local looked, heads, served, before = 0, {}, {}, #texts
      local states, fields = states_at(domain, places)
      local clock, turn = numbers_of(table.remove(states))
      for i, place in ipairs(places) do
        local share, most = share_in(domain, ARGV[place]), math.ceil(2 * left / #places)
        local head = read_head(share.queue, most)
        local room = share.is_bounded and bounds.room_one_by_one(share) or most
        head.taken, head.field, head.share, share.head = 0, fields[i], share, head
        -- How many of them may be claimed, and whether behind these no more may be for now.
        head.ordinary, head.is_all = #head.texts, head.is_whole
        for n, body in ipairs(head.bodies) do
          if n > room or head.ids[n] == '' or head.suspicious[n] or not body or body == '' then
            head.ordinary, head.is_all = n - 1, n > room and not share.condition
            break
          end
        end
        heads[i], looked = head, looked + #head.texts
      end

      local function next_planned()
        while #heads > 0 do
          local i = next_of(states, #heads)
          local head = heads[i]
          if head.taken < head.ordinary then
            if head.taken == 0 then served[#served + 1] = head end
            states[i], clock, turn = serve(states[i], head.share.cost, 1, clock, turn)
            head.state = states[i]
            return head.share, 1
          elseif not head.is_all then
            return nil
          end
          table.remove(heads, i)
          table.remove(states, i)
        end
      end

      local function close()
        if #served == 0 then return end
        redis.call('RPUSH', ask.inflight, unpack(texts, before + 1))
        local changed = { domain.name, state_of(clock, turn) }
        for _, head in ipairs(served) do
          note(head.share, head.taken, cut(head.share.queue, head, head.taken))
          changed[#changed + 1] = head.field
          changed[#changed + 1] = head.state
        end
        if bounds then write_counts() end
        redis.call('HSET', PREFIX .. 'rotation', unpack(changed))
      end
      return next_planned, close, looked
    end

    -- Several picks: by plans, and where these end, one claim in rotation, which takes whatever lies there. For few
    -- picks it would cost more to read what lies at the head of every rival.
    claim_several = function(domain)
      local choose, places_left = by_rotation(domain)
      while goes_on() do
        local places, before, looked = places_left(), #texts, 0
        if #places > 1 and #places <= 2 * left then
          local planned, close, read = by_plan(domain, places)
          claim_by(planned)
          close()
          looked = read
        end
        if #texts > before then
          choose, places_left = by_rotation(domain)
        else
          local share, n = choose()
          if not share then return end
          claim_from(share, n)
        end
        -- Behind the claim, which would find no room for it: it gets on whatever was looked at.
        examined = examined + looked
      end
    end
  end

  -- Claim in the order of the tiers.
  local function claim_in_order()
    for _, domain in ipairs(domains) do
      if domain.has_patterns then
        claim_by(by_turn(domain))
      elseif several and not any_former then
        claim_several(domain)
      else
        claim_by(by_rotation(domain))
      end
      if not goes_on() then return end
    end
  end

  -- It was told before that this entry has to run alone. While it lies first in its queue nothing else is claimed, and
  -- it is when nothing is held: its turn had come.
  if ask.awaited ~= '' then
    local _, queue = names_in(ask.awaited)
    local share = queue and share_of(domains, queue)
    local lane = queue and length(delayed_lane(queue)) > 0 and delayed_lane(queue) or ready_lane(queue or '')
    local is_first = length(lane) > 0 and redis.call('LINDEX', lane, 0) == ask.awaited
    local is_open = share and not paused(queue) and not (share.is_bounded and bounds.shut_until(share))
    if is_first and is_open then claim_from(share, 1) end
  end
  if goes_on() then claim_in_order() end
  if goes_on() and mark_unmarked(domains) then claim_in_order() end
  return texts, claims, dropped, left, word, alone
end
