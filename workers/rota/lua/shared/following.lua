-- Process what follows the end of a task: the rest of its chain, the state of its group, and the task that follows the
-- group.
-- `members` maps the id of a live task to its group, or `-` for none. If the task belongs to a chain, a line feed and
-- the rest of the chain follow: for each task a line `ID QUEUE DUE BYTES`, and the body. `group-members:GROUP` has the
-- members that have not ended, with the current task of each chain. Each end counts once, when the task is removed from
-- that set. In a fleet without groups and chains, this file makes only one check.
-- with: ending
-- sets: follow
-- keys     group-members:* group:* groups tasks
local following -- the functions and constants that scripts may use
if any_members then
  -- with: other_ends legacy_item
  following = {}
  local ENDED_MS = 50000 -- milliseconds for which an ended group can be read
  local ITEM = '^(%S+) (%S+) ([+@]?)(%d*)(%^?)%-? (%d+)\n()'
  local MEMBER = '^(%S+)\n?(.*)$'
  local function group_key(group) return PREFIX .. 'group:' .. group end
  local function members_key(group) return PREFIX .. 'group-members:' .. group end
  following.group_key, following.members_key, following.item = group_key, members_key, ITEM
  following.ring = ring_if_served -- `turn` replaces this function, because the turn may itself claim the task

  -- Return the incarnation number for a new task with this id: '' for the first task with this id, nil if the id is
  -- taken. A cancelled task whose entry is still in a lane also occupies its id.
  local function next_incarnation(id)
    if redis.call('HEXISTS', PREFIX .. 'tasks', id) == 1 then return nil end
    local incarnation, tombstones = incarnation_of(id)
    if not incarnation then return '' end
    redis.call('HSET', FORMER, id, string.format('%.0f %.0f', incarnation + 1, tombstones))
    return string.format('%.0f', incarnation + 1)
  end

  -- Enqueue the first task of `text` as a member of the group (`-` for none). The rest of `text` becomes its chain.
  -- Return its id, or nil if the id is taken.
  local function put_what_follows(text, group, now)
    local id, queue, sign, digits, front, size, at = string.match(text, ITEM)
    local incarnation = name_or_nil(id) and queue_or_nil(queue) and next_incarnation(id)
    if not incarnation then return nil end
    local body, rest = string.sub(text, at, at + size - 1), string.sub(text, at + size)
    local due = math.min((tonumber(digits) or 0) + (sign ~= '@' and now or 0), LATEST)
    local e = new_entry(id, queue, due > now and 'd' or 'i', math.max(due, now), now)
    e.flag, e.front = incarnation == '' and '-' or incarnation, front ~= ''
    local member = rest == '' and group or group .. '\n' .. rest
    if member ~= '-' then redis.call('HSET', MEMBERS, id, member) end
    if group ~= '-' then redis.call('SADD', members_key(group), id) end
    local is_ready = place(e, body)
    if is_ready then following.ring(queue) elseif is_ready == nil then bury(e, UNUSABLE, now) end
    return id
  end

  -- Wake the clients whose wait for a group is over. `awaited` has ` CLIENT:MOST` for each client. MOST is the number
  -- of members that may be left, or `-` if the client waits for the end of the group.
  local function wake_for(group, awaited, left, has_ended)
    local kept = {}
    for client, most in string.gmatch(awaited, ' (%w+):([%d-]+)') do
      if has_ended or left <= (tonumber(most) or -1) then
        wake(client, { 'group ' .. group })
      else
        kept[#kept + 1] = ' ' .. client .. ':' .. most
      end
    end
    redis.call('HSET', group_key(group), 'awaited', table.concat(kept))
  end

  -- End a group. Only this function enqueues the task that follows a group.
  local function end_group(group, phase, now)
    local key = group_key(group)
    local on_end = redis.call('HMGET', key, 'then', 'on_dead', 'dead')
    local how, text = phase, ''
    if phase ~= 'cancelled' then
      local on_dead = (tonumber(on_end[3] or '') or 0) > 0 and on_end[2] or ''
      how, text = 'then', on_end[1] or ''
      if on_dead ~= '' then how, text = 'on_dead', on_dead end
    end
    redis.call('HSET', key, 'ended_us', string.format('%.0f', now))
    redis.call('HDEL', key, 'then', 'on_dead')
    redis.call('PEXPIRE', key, ENDED_MS)
    redis.pcall('ZREM', PREFIX .. 'groups', group)
    local followed_by = put_what_follows(text, '-', now)
    redis.call('HSET', key, 'followed_by', followed_by or '')
    total('groups-ended:' .. ((followed_by or phase == 'cancelled') and how or 'nothing'), 1)
  end

  local function is_over(phase, left) return left == 0 and phase ~= 'open' end

  local function end_group_if_over(group, now)
    local known = redis.pcall('HMGET', group_key(group), 'phase', 'ended_us', 'awaited')
    local left = redis.pcall('SCARD', members_key(group))
    if known.err or type(left) ~= 'number' or not known[1] or known[2] then return end
    local has_ended = is_over(known[1], left)
    if has_ended then end_group(group, known[1], now) end
    if (known[3] or '') ~= '' then wake_for(group, known[3], left, has_ended) end
  end

  following.end_group_if_over = end_group_if_over

  -- Remove members that have ended from their group, and count those that were not counted before.
  local function leave_group(group, how, ids)
    local left = redis.pcall('SREM', members_key(group), unpack(ids))
    if type(left) == 'number' and left > 0 then redis.pcall('HINCRBY', group_key(group), how, left) end
  end

  -- When a task of a chain is done, the next task replaces it. If the group is cancelled, or the id of the next task is
  -- taken, the rest of the chain is dropped.
  local function go_on(id, group, rest, now)
    if group == '-' then return put_what_follows(rest, '-', now) end
    if redis.pcall('SREM', members_key(group), id) ~= 1 then return end
    local is_cancelled = redis.pcall('HGET', group_key(group), 'phase') == 'cancelled'
    if not is_cancelled and put_what_follows(rest, group, now) then return end
    redis.pcall('HINCRBY', group_key(group), 'cancelled', 1)
  end

  local function goes_on(how, rest) return how == 'done' and rest ~= '' end

  follow = function(how, now, ids)
    local gone, chains, groups, leaving = {}, {}, {}, {}
    for i, member in ipairs(redis.call('HMGET', MEMBERS, unpack(ids))) do
      local group, rest = string.match(member or '', MEMBER)
      if member then gone[#gone + 1] = ids[i] end -- delete the field even if its text is not valid
      if group and group ~= '-' and not leaving[group] then
        groups[#groups + 1] = group
        leaving[group] = {}
      end
      if group and goes_on(how, rest) then
        chains[#chains + 1] = { ids[i], group, rest, now }
      elseif group and group ~= '-' then
        table.insert(leaving[group], ids[i])
      end
    end
    if #gone == 0 then return end
    redis.call('HDEL', MEMBERS, unpack(gone))
    for group, of in pairs(leaving) do
      if #of > 0 then leave_group(group, how, of) end
    end
    for _, chain in ipairs(chains) do go_on(unpack(chain)) end
    for _, group in ipairs(groups) do end_group_if_over(group, now) end
  end
end
