-- Tombstones: entries of cancelled tasks whose ids were used again. When a waiting task is cancelled, its entry stays
-- in the lane, because lanes are not searched. If the id is enqueued again before a claim drops the entry, the entry
-- becomes a tombstone. An incarnation of an id is one task with that id. Incarnations are numbered from 0. `former`
-- maps the id to `incarnation tombstones`: the number of its current incarnation, and the number of tombstones. The
-- flag of an entry has the number of its incarnation, unless that is 0, so a tombstone has a lower number than the live
-- task. If `former` is empty, one function that returns nothing replaces the three functions below, because defining
-- functions takes time in each call.
-- keys     tasks
local function no_incarnation() end
local incarnation_of, is_tombstone, incarnation_ended = no_incarnation, no_incarnation, no_incarnation
if any_incarnations then
  -- Return the number of the current incarnation and the number of tombstones; nothing for an id without a record.
  incarnation_of = function(id)
    local text = redis.call('HGET', FORMER, id) or ''
    local incarnation, tombstones = string.match(#text < 24 and text or '', '^(%d+) (%d+)$')
    return tonumber(incarnation or ''), tonumber(tombstones or '')
  end

  -- Whether an entry is a tombstone. If `goes` is true, the entry was removed from its list, so count one tombstone
  -- fewer. If it was the last tombstone, and the current task with this id has ended, delete the record of the id.
  is_tombstone = function(id, flag, goes)
    local incarnation, tombstones = incarnation_of(id)
    if not incarnation or (tonumber(string.match(flag, '%d+') or '') or 0) >= incarnation then return false end
    if goes and tombstones <= 1 and redis.call('HEXISTS', PREFIX .. 'tasks', id) == 0 then
      redis.call('HDEL', FORMER, id)
    elseif goes then
      redis.call('HSET', FORMER, id, string.format('%.0f %.0f', incarnation, math.max(0, tombstones - 1)))
    end
    return true
  end

  -- Process the end of a task whose flag has an incarnation number. The record of its id is kept as long as there are
  -- tombstones.
  incarnation_ended = function(id)
    local _, tombstones = incarnation_of(id)
    if tombstones == 0 then redis.call('HDEL', FORMER, id) end
  end
end
