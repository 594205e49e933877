-- Generic cell rate. Its state is the time at which the starts so far are paid off, one interval for each. A start is
-- permitted when that time is at most the slack ahead.
-- A burst of one leaves no slack of its own. Each start that comes late would then delay all later ones: at 10/s, 20 ms
-- of lateness cost a sixth of the rate. So the slack is at least half an interval, and 50 ms at most: a start that late
-- delays no other one.
local MOST_LATE, LATE_SHARE = 50000, 0.5
local function slack_of(interval, burst)
  return math.max((burst - 1) * interval, math.min(MOST_LATE, math.floor(interval * LATE_SHARE)))
end
