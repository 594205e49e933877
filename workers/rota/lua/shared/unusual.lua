-- Process entries at the head of a queue that are anything other than new entries with a body. heads.lua includes this
-- file when a claim finds the first such entry. `claim` is the record of shared/claim.lua.
-- with: entry counters incarnations

-- Check an entry that may be something other than a new entry with a body. Return its text and its body, or no body if
-- its task was cancelled. `claim.quarantined` becomes the entry if it has to run alone.
local function check_entry(claim, queue, head, i)
  local text, body, id = head.texts[i], head.bodies[i], head.ids[i]
  local live = body and id ~= ''
  -- A tombstone needs no counting, because its task was counted as cancelled when the id was used again.
  local gone = any_incarnations and id ~= '' and is_tombstone(id, flag_of(text), true)
  if gone or live and body == '' then
    -- The end was recorded when the task was cancelled.
    if not gone then remove_ended(id, flag_of(text), 'cancelled') end
    table.insert(claim.dropped, text)
    return text, nil
  end
  if live then
    if head.suspicious[i] then claim.quarantined = text end
    return text, body
  end
  if not claim.adopt_item then -- this function is created when the first legacy item is found
    -- with: adopt
    claim.adopt_item = function(item, into, kind)
      return adopt(item, (item_names(item)), into, kind, claim.now, claim.now)
    end
  end
  local e, adopted_body = claim.adopt_item(text, queue, i <= head.delayed and 'd' or 'i')
  return entry_text(e), adopted_body
end
