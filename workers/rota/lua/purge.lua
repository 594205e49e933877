#!lua flags=allow-oom
-- End the ready tasks of a queue. A call removes at most 500 entries from its two lanes, the delayed lane first.
-- Running and scheduled tasks are not affected. The rest of a purged task's chain is dropped. If a purged task was the
-- last member of its group, the group ends, and its `then` or `on_dead` task is enqueued.
-- with: prefix clock entry legacy_item doorbell counters in_use incarnations task_events waiters other_ends following
-- KEYS[1]  tasks
-- ARGV
--   queue  name of the queue
-- keys     counts dead delayed doorbell doorbell:* ends ends-sealed ends-untold ends:* epitaphs events events-on former
--          group-members:* group:* groups idle keys members meta patterns paused progress queue:* queues ready
--          replies:* result:* served tasks tickets times:* totals turns:* unique:* waiters
-- returns  the number of entries that were removed, including legacy items, tombstones and entries of cancelled tasks;
--          0|1 whether there are more
-- Invariant: each entry that was removed was in a lane, and its task has ended.
local MOST = 500
local queue, now = ARGV[1], redis_now()
guard_task_keys()
redis.call('LLEN', ready_lane(queue))
redis.call('LLEN', delayed_lane(queue))
local purged = {}
for _, lane in ipairs({ delayed_lane(queue), ready_lane(queue) }) do
  local popped = #purged < MOST and redis.call('LPOP', lane, MOST - #purged) or {}
  for _, text in ipairs(popped) do purged[#purged + 1] = text end
end
local left = entries_in(queue) -- counted now, because tasks that follow the purged tasks must not be included
if left == 0 then redis.call('SREM', PREFIX .. 'ready', queue) end
for _, text in ipairs(purged) do
  local e = parse_entry(text)
  local body = e and not is_tombstone(e.id, e.flag, true) and redis.call('HGET', PREFIX .. 'tasks', e.id)
  if body == '' then
    remove_ended(e.id, e.flag, 'purged') -- the end was recorded when the task was cancelled
  elseif body then
    local _, _, name = item_names(body)
    end_task(e, 'purged', now, '-', NO_RUN .. (name or '-'))
  end -- a legacy item was never accepted, so no counter includes it
end
return { #purged, left > 0 and 1 or 0 }
