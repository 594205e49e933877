-- Counts (what is where, rebuilt by heal) and totals (what ever happened). A field somebody overwrote with
-- another kind of value must not stop a transition half way, so these two never raise.
-- keys     counts dead delayed epitaphs keys ready tasks tickets totals
local function count(field, by) redis.pcall('HINCRBY', PREFIX .. 'counts', field, by) end
local function total(field, by) redis.pcall('HINCRBY', PREFIX .. 'totals', field, by) end

-- Counts that go up and down within a call: written at its end, and where nothing has changed not at all.
local later = {}
local function count_later(field, by) later[field] = (later[field] or 0) + by end
local function write_counts()
  for field, by in pairs(later) do
    if by ~= 0 then count(field, by) end
  end
  later = {}
end

-- Read what the books and the task's places may be written to: a wrong type raises here, before the first write.
local function guard_places()
  redis.call('HLEN', PREFIX .. 'tasks')
  redis.call('HLEN', PREFIX .. 'tickets')
  redis.call('ZCARD', PREFIX .. 'delayed')
  redis.call('ZCARD', PREFIX .. 'dead')
  redis.call('HLEN', PREFIX .. 'epitaphs')
  redis.call('HLEN', PREFIX .. 'keys')
  redis.call('HLEN', PREFIX .. 'counts')
  redis.call('HLEN', PREFIX .. 'totals')
  redis.call('SCARD', PREFIX .. 'ready')
end
