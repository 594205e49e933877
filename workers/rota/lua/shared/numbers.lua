-- Numbers as these scripts write them, in whole digits. Other hands may have left anything in their place, and tonumber
-- would take `nan`, `1e300` and `0x10` for numbers too: what is not ours counts as not written.
local DIGITS, MOST_WHOLE = 16, 9e15 -- as LATEST: above, a double is not exact
local function whole(text)
  local number = text and #text <= DIGITS and string.find(text, '^%d+$') and tonumber(text)
  return number and number <= MOST_WHOLE and number or nil
end

-- Of the books: a count may be below zero for a while.
local function whole_or_zero(text)
  return text and (whole(text) or string.sub(text, 1, 1) == '-' and -(whole(string.sub(text, 2)) or 0)) or 0
end
local function digits_of(number) return string.format('%.0f', number) end
