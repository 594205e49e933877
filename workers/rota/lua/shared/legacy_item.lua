-- Legacy items: JSON arrays that programs in other languages push directly. The names are read with patterns. Only the
-- worker decodes and checks the rest.
local function name_or_nil(text)
  if text and #text <= 128 and string.find(text, '^[%w_.:-]+$') then return text end
  return nil
end

local function queue_or_nil(text)
  local queue = name_or_nil(text)
  if queue and string.find(queue, '%-delayed$') then return nil end
  return queue
end

-- `["id","queue","name",...` returns id, queue, name. `["name",[...` returns nothing.
local function item_names(text)
  local head = string.sub(text, 1, 600)
  local id, queue, name = string.match(head, '^%s*%[%s*"([^"]*)"%s*,%s*"([^"]*)"%s*,%s*"([^"]*)')
  return name_or_nil(id), queue_or_nil(queue), name_or_nil(name)
end

-- Return the name of the task in a body, '' if it cannot be read. The name is only shown to people.
local function name_in(body)
  local _, _, name = item_names(body)
  return name or name_or_nil(string.match(string.sub(body, 1, 200), '^%s*%[%s*"([^"]*)"')) or ''
end
