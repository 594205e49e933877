-- Evaluate conditions. condition.lua includes this file for the first queue with a condition, because creating these
-- functions takes time in each turn, and most fleets have no conditions.
-- with: doorbell
-- keys     counts
local LONGEST_CONDITION, LONGEST_ERROR = 10000, 200
-- Both are in microseconds. A faulty condition is evaluated again after RECHECK_AFTER. A worker that waits for a queue
-- to open checks the condition again after at most LONGEST_WAIT, so that it notices changes.
local RECHECK_AFTER, LONGEST_WAIT = 1000000, 5000000
local SCOPE = 'local queue, ready, delayed, running, now = ... ' -- because of this prefix, the text cannot be bytecode

local function closed_for(after, fault)
  return { open = false, after = math.min(after, LONGEST_WAIT), fault = fault }
end

local function by_hours(text, now)
  local known = tonumber(string.match(text, '^%d+') or '')
  if not known then return closed_for(RECHECK_AFTER, 'its hours cannot be read') end
  for from, to in string.gmatch(text, ' (%d+)-(%d+)') do
    if now < tonumber(from) then return closed_for(tonumber(from) - now) end
    if now < tonumber(to) then return { open = true } end
  end
  if now >= known then return closed_for(RECHECK_AFTER, 'no master has published its hours from now on') end
  return closed_for(known - now)
end

-- Return in how many microseconds a chunk that closes the queue now would open it, if nothing but the time changed.
-- Search the next second in steps of 50 ms, then narrow the result down to 1 ms. A long chunk is not called again,
-- because that would take too long.
local STEP, NEAR, LONGEST_AHEAD = 50000, 1000, 1000
local function opens_after(text, opens_at)
  if #text > LONGEST_AHEAD or not string.find(text, 'now', 1, true) then return RECHECK_AFTER end
  local opens = STEP
  while opens < RECHECK_AFTER and not opens_at(opens) do opens = opens + STEP end
  local shut = opens - STEP
  while opens < RECHECK_AFTER and opens - shut > NEAR do
    local middle = math.floor((shut + opens) / 2)
    if opens_at(middle) then opens = middle else shut = middle end
  end
  return opens
end

local function counted(field)
  local number = redis.pcall('HGET', PREFIX .. 'counts', field)
  return type(number) == 'string' and tonumber(number) or 0
end

local function by_lua(text, now, queue)
  local chunk, fault = loadstring(SCOPE .. text, '=condition')
  if not chunk then return closed_for(RECHECK_AFTER, fault) end
  local delayed, running = counted('delayed:' .. queue), counted('running:' .. queue)
  local ready = entries_in(queue)
  local function evaluate(after) return pcall(chunk, queue, ready, delayed, running, (now + after) / 1000000) end
  local works, reply = evaluate(0)
  if not works then return closed_for(RECHECK_AFTER, type(reply) == 'string' and reply or 'it failed') end
  if reply == true then return { open = true } end
  local function opens_at(after) return select(2, evaluate(after)) == true end
  if reply == false then return closed_for(opens_after(text, opens_at)) end
  return closed_for(RECHECK_AFTER, 'it has to return true or false, and returned ' .. type(reply))
end

local KINDS = { hours = by_hours, lua = by_lua }

local function decide(queue, name, now)
  local text = redis.pcall('HGET', CONDITIONS, name)
  if not text then return closed_for(RECHECK_AFTER, 'no master has defined it') end
  local is_ours = type(text) == 'string' and #text <= LONGEST_CONDITION
  local kind, rest = string.match(is_ours and text or '', '^%d+ (%l+) (.*)$')
  if not KINDS[kind] then return closed_for(RECHECK_AFTER, 'the text in Redis is not a condition') end
  local decision = KINDS[kind](rest, now, queue)
  decision.counts = kind == 'lua' -- whether the decision may depend on the number of running tasks
  if decision.fault then decision.fault = string.sub(decision.fault, 1, LONGEST_ERROR) end
  return decision
end
