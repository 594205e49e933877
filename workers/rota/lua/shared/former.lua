-- Former lives of an id: cancelled while their entries stood in a lane, and followed by another task of the same id
-- before a claim came upon them. Nobody looks for an entry in a lane, so it stays there as a shell. `former` has, by
-- id, `life shells`: the number of the last life, and how many shells of earlier ones stand. The number of a life that
-- has predecessors is in the flag of its entry, so that a shell is told from the task that lives. While there are none,
-- one function that returns nothing stands in for these: each function costs a call.
-- keys     tasks
local function no_former_life() end
local lives_of, is_shell, numbered_life_ended = no_former_life, no_former_life, no_former_life
if any_former then
  -- The number of the last life and how many shells stand; nothing of an id that has no such past.
  lives_of = function(id)
    local text = redis.call('HGET', FORMER, id) or ''
    local life, shells = string.match(#text < 24 and text or '', '^(%d+) (%d+)$')
    return tonumber(life or ''), tonumber(shells or '')
  end

  -- Whether an entry is the shell of a former life. `goes`: it was taken from where it stood; the last one takes the
  -- record with it, unless the life that this tells of goes on.
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

  -- A life with a number has ended. Its record stays while there are shells.
  numbered_life_ended = function(id)
    local _, shells = lives_of(id)
    if shells == 0 then redis.call('HDEL', FORMER, id) end
  end
end
