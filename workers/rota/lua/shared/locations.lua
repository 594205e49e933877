-- Find where tasks are, as far as that is possible without reading a lane.
-- keys     dead delayed inflight:* owners

-- Return the ids in the lists of all registered owners, as a set.
local function held_ids()
  local held = {}
  for _, owner in ipairs(redis.call('ZRANGE', PREFIX .. 'owners', 0, -1)) do
    for _, line in ipairs(lines_of(PREFIX .. 'inflight:' .. owner)) do held[id_of(line)] = true end
  end
  return held
end

-- Return the ids, out of at most 500, that are neither in `held` nor delayed nor dead. These tasks are in a lane, or
-- nowhere.
local function in_lane_or_nowhere(ids, held)
  if #ids == 0 then return {} end
  local delayed = redis.call('ZMSCORE', PREFIX .. 'delayed', unpack(ids))
  local dead = redis.call('ZMSCORE', PREFIX .. 'dead', unpack(ids))
  local rest = {}
  for i, id in ipairs(ids) do
    if not (held[id] or delayed[i] or dead[i]) then rest[#rest + 1] = id end
  end
  return rest
end
