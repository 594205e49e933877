-- The reply to a turn that has nothing to do: it reports nothing, its owner holds nothing, and every lane of its tiers
-- is empty. Every idle worker makes such a turn every 20 s, so there are hundreds per second in a large fleet. A
-- script that includes this file replies before it creates most of its functions, which would take longer than the
-- rest of the turn. If patterns are in use, the lanes are not known here, so the whole turn is made. `explain`, which
-- contains `turn`, includes this file too. It never replies here, because its owner is not registered yet.
-- with: prefix clock patterns
-- keys     inflight:* owners queue:*
local function has_nothing_to_do()
  local held, tokens, plain_count, settlements, tiers = ARGV[7], ARGV[8], ARGV[10], ARGV[12], 13
  local says_nothing = held == '0' and tokens == '0' and plain_count == '0' and settlements == '0'
  if any_patterns or not says_nothing then return false end
  local keys, at = { PREFIX .. 'inflight:' .. ARGV[1] }, tiers + 1
  for _ = 1, tonumber(ARGV[tiers]) do
    local first = at + 3
    at = first + tonumber(ARGV[at + 2])
    for index = first, at - 1 do
      keys[#keys + 1], keys[#keys + 2] = ready_lane(ARGV[index]), delayed_lane(ARGV[index])
    end
  end
  -- Lua can unpack only a few thousand values.
  return #keys <= 1000 and redis.call('ZSCORE', PREFIX .. 'owners', ARGV[1]) and redis.call('EXISTS', unpack(keys)) == 0
end
if has_nothing_to_do() then return { 'ok', redis_now(), 0, {}, {}, {} } end
