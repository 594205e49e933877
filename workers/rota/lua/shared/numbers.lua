-- Read whole numbers that consist only of digits, as the scripts write them. Other programs may have stored anything,
-- and tonumber would also accept `nan`, `1e300` and `0x10`. A text that no script could have written counts as missing.
local DIGITS, MOST_WHOLE = 16, 9e15 -- most digits of a number, and LATEST of clock.lua; larger doubles are not exact
local function whole(text)
  local number = text and #text <= DIGITS and string.find(text, '^%d+$') and tonumber(text)
  return number and number <= MOST_WHOLE and number or nil
end

-- Like `whole`, but for counters, which may be negative for a while. A missing counter is 0.
local function whole_or_zero(text)
  return text and (whole(text) or string.sub(text, 1, 1) == '-' and -(whole(string.sub(text, 2)) or 0)) or 0
end
local function digits_of(number) return string.format('%.0f', number) end
