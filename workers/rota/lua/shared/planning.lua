-- A claim of several picks, where several queues of a domain are rivals: first it is worked out whose turn it is how often, then
-- each queue is read and written once. Only ordinary entries are claimed so: live ones, without a crash or a loss on record.
-- What comes behind another one is left to the claim of one at a time.
-- A turn says in its third argument how many picks it has, and with one there is nothing of this: each function costs it.
-- with: entry doorbell books condition rotation bounds
local make_planner
if ARGV[3] ~= '1' then
  make_planner = function(inflight, bounds, to_ring, has_more, claimed, claims)
    -- What lies at the head of a queue. `ordinary`: so many from the first on, and no more than may start. `is_all`: there is no
    -- more of it that may be claimed now.
    local function read_head(share, most)
      local texts = redis.pcall('LRANGE', delayed_lane(share.queue), '0', most - 1)
      if texts.err then texts = {} end
      local delayed, ready = #texts, {}
      if delayed < most then ready = redis.pcall('LRANGE', ready_lane(share.queue), '0', most - delayed - 1) end
      for _, text in ipairs(ready.err and {} or ready) do texts[#texts + 1] = text end
      local head = { share = share, texts = texts, delayed = delayed, taken = 0, ordinary = 0, is_all = #texts < most }
      local room = share.is_bounded and bounds.room_one_by_one(share) or most
      local ids, suspicious = glance_at_all(texts)
      head.bodies = #ids > 0 and redis.call('HMGET', PREFIX .. 'tasks', unpack(ids)) or {}
      for i, body in ipairs(head.bodies) do
        if i > room or ids[i] == '' or suspicious[i] or not body or body == '' then
          head.is_all = i > room and not share.condition
          break
        end
        head.ordinary = i
      end
      return head
    end

    -- Take off the lanes what was taken of a head, and write it down.
    local function close(head)
      local share, delayed = head.share, math.min(head.taken, head.delayed)
      if delayed > 0 then redis.call('LTRIM', delayed_lane(share.queue), delayed, '-1') end
      if head.taken > delayed then redis.call('LTRIM', ready_lane(share.queue), head.taken - delayed, '-1') end
      has_more[share.queue] = entries_in(share.queue) > 0
      if has_more[share.queue] then to_ring[share.name] = true else redis.call('SREM', PREFIX .. 'ready', share.queue) end
      count_later('running:' .. share.queue, head.taken)
      if share.is_bounded then bounds.spend_rate(share, head.taken) end
      if share.condition then redis.pcall('HDEL', CLOSED, share.queue) end
      verdicts[share.queue] = nil
    end

    -- Of up to `left` picks the heads in their order. `times`: the clock and the turn of the domain; both move.
    local function plan(domain, heads, states, times, left)
      local order = {}
      while #order < left and #heads > 0 do
        local i = next_in_rotation(domain, heads, states)
        local head = heads[i]
        if head.taken < head.ordinary then
          times.clock, times.turn = math.max(times.clock, (numbers_of(states[i]))), times.turn + 1
          states[i] = state_of(times.clock + head.share.cost, times.turn)
          head.taken, head.state = head.taken + 1, states[i]
          order[#order + 1] = head
        elseif head.is_all then
          table.remove(heads, i)
          table.remove(states, i)
        else
          break
        end
      end
      return order
    end

    -- Claim up to `left` entries; returns how many, and how many were looked at.
    return function(domain, places, left)
      local fields, heads, looked = {}, {}, 0
      for i, place in ipairs(places) do
        heads[i] = read_head(share_in(domain, ARGV[place]), math.ceil(2 * left / #places))
        fields[i] = domain.name .. ' ' .. ARGV[place]
        looked = looked + #heads[i].texts
      end
      fields[#fields + 1] = domain.name
      local states, times, all = redis.call('HMGET', PREFIX .. 'rotation', unpack(fields)), {}, { unpack(heads) }
      times.clock, times.turn = numbers_of(table.remove(states))
      local order, before, at = plan(domain, heads, states, times, left), #claimed, {}
      if #order == 0 then return 0, looked end
      for i, head in ipairs(order) do
        at[head] = (at[head] or 0) + 1
        local text = head.texts[at[head]]
        claimed[before + i], claims[2 * (before + i) - 1], claims[2 * (before + i)] = text, text, head.bodies[at[head]]
      end
      redis.call('RPUSH', inflight, unpack(claimed, before + 1))
      local changed = { domain.name, state_of(times.clock, times.turn) }
      for i, head in ipairs(all) do
        if head.taken > 0 then
          close(head)
          changed[#changed + 1] = fields[i]
          changed[#changed + 1] = head.state
        end
      end
      if bounds then write_counts() end
      redis.call('HSET', PREFIX .. 'rotation', unpack(changed))
      return #order, looked
    end
  end
end
