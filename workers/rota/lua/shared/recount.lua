-- Count anew what runs, from the in-flight lists of the registered owners.
local function running_by_queue()
  local running = {}
  for _, owner in ipairs(redis.call('ZRANGE', PREFIX .. 'owners', 0, -1)) do
    for _, line in ipairs(lines_of(PREFIX .. 'inflight:' .. owner)) do
      local e = parse_entry(line)
      if e then running[e.queue] = (running[e.queue] or 0) + 1 end
    end
  end
  return running
end

local function replace_counts(prefix, numbers)
  local counts = PREFIX .. 'counts'
  for _, field in ipairs(redis.call('HKEYS', counts)) do
    if string.sub(field, 1, #prefix) == prefix then redis.call('HDEL', counts, field) end
  end
  for name, number in pairs(numbers) do redis.call('HSET', counts, prefix .. name, string.format('%.0f', number)) end
end
