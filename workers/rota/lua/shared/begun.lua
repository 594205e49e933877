-- Tasks that may be started once at most: before one is, its entry gets the mark `b` in its flag. Whoever settles such
-- an entry knows what became of the start; whoever finds it in the list of a dead owner buries it.
local function begun_text(text)
  local before, flag = string.match(text, '^(.* )(%S+)$')
  if not before or string.find(flag, 'b', 1, true) then return text end
  return before .. string.gsub(string.gsub(flag, '%-', ''), '(%u?)$', 'b%1', 1)
end
