-- Rate limits, by the generic cell rate algorithm. Each start uses one interval of time, and the state is the time up
-- to which the starts so far have used the rate. A start is allowed if that time is at most the slack ahead of now. A
-- burst of 1 would leave no slack. Each late start would then delay all later starts. For example, at 10 starts per
-- second, 20 ms of lateness would cost a sixth of the rate. So the slack is at least half an interval, up to 50 ms. A
-- start that is late by at most the slack does not delay other starts.
local MOST_LATE, LATE_SHARE = 50000, 0.5
local function slack_of(interval, burst)
  return math.max((burst - 1) * interval, math.min(MOST_LATE, math.floor(interval * LATE_SHARE)))
end
