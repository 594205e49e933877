-- The text that states how a queue is served: `COST CAP INTERVAL BURST`, then `:CONDITION` if the queue has a
-- condition. Only this file and rota/protocol/tiers.py know its form. In a list of settings, ` NAME=` precedes each
-- text, or `-` for a queue that is not served.
local SHARE = '^([1-9]%d*) (%d+) (%d+) (%d+)([%w_.:-]*)() ?[^ =]*()'
local COLON, EQUALS = 58, 61

-- Read the text that begins at `at` into `share`, and return where it ends. Return nil if it is not such a text, or if
-- anything other than the next name follows.
local function read_share(share, text, at)
  local cost, cap, interval, burst, condition, behind, next_at = string.match(text, SHARE, at)
  if not cost or (behind < next_at) ~= (string.byte(text, next_at) == EQUALS) then return nil end
  share.cost, share.cap = tonumber(cost), tonumber(cap)
  share.interval, share.burst = tonumber(interval), tonumber(burst)
  share.is_bounded = share.cap > 0 or share.interval > 0
  if condition == '' then return behind end
  if #condition == 1 or string.byte(condition) ~= COLON then return nil end
  share.condition, share.is_bounded = string.sub(condition, 2), true
  return behind
end

-- Like `read_share`, but for settings that a program of the same version has written. Any other text raises an error,
-- because ignoring a part of it could open a queue that a condition closes.
local function read_setting(share, settings, at)
  local behind = read_share(share, settings, at)
  if behind then return behind end
  error('ROTA not the settings of a queue: ' .. string.sub(settings, at, at + 99))
end

local function share_text(share)
  local numbers = string.format('%.0f %.0f %.0f %.0f', share.cost, share.cap, share.interval, share.burst)
  return share.condition and numbers .. ':' .. share.condition or numbers
end

-- Whether a list of settings limits no starts, because each of its texts sets only a cost. A text in an unknown form
-- counts as a limit.
local function limits_nothing(settings)
  local left = string.gsub(settings, ' [^ =]+=%d+ 0 0 %d+', '')
  return left == '' or (string.gsub(left, ' [^ =]+=%-', '')) == ''
end
