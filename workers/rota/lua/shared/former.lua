-- Shells: entries of cancelled tasks whose ids were used again. A waiting task is cancelled without a search for its
-- entry in the lane, so the entry stays there. If the id is enqueued again before a claim drops the entry, the entry
-- becomes a shell. `former` maps the id to `life shells`: the number of its current life (task of this id), and the
-- number of shells. The flag of an entry has its life number, if it is not the first, which tells a shell from the live
-- task. If there are no shells, one function that returns nothing replaces these three, because defining a function
-- takes time in each call.
-- keys     tasks
local function no_former_life() end
local lives_of, is_shell, numbered_life_ended = no_former_life, no_former_life, no_former_life
if any_former then
  -- Return the current life number and the number of shells; nothing for an id without a record.
  lives_of = function(id)
    local text = redis.call('HGET', FORMER, id) or ''
    local life, shells = string.match(#text < 24 and text or '', '^(%d+) (%d+)$')
    return tonumber(life or ''), tonumber(shells or '')
  end

  -- Whether an entry is a shell. If `goes` is true, its entry was removed from its place: count one shell less, and
  -- delete the record with the last shell if the current task of this id has ended.
  is_shell = function(id, flag, goes)
    local life, shells = lives_of(id)
    if not life or (tonumber(string.match(flag, '%d+') or '') or 0) >= life then return false end
    if goes and shells <= 1 and redis.call('HEXISTS', PREFIX .. 'tasks', id) == 0 then
      redis.call('HDEL', FORMER, id)
    elseif goes then
      redis.call('HSET', FORMER, id, string.format('%.0f %.0f', life, math.max(0, shells - 1)))
    end
    return true
  end

  -- A task with a life number has ended. Its record stays while there are shells.
  numbered_life_ended = function(id)
    local _, shells = lives_of(id)
    if shells == 0 then redis.call('HDEL', FORMER, id) end
  end
end
