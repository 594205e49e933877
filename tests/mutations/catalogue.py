"""The known bugs, each with the catcher that must find it."""

from dataclasses import dataclass
from typing import Final

from mutations import bugs
from mutations.catchers import Catcher, Soak, Tests
from mutations.changes import Change, LuaFunction, PythonFunction, RedisAnswer
from soak.findings import Wrong

# The queue is served but its virtual time does not change, so the same queue is chosen again.
_FREE_SERVING: Final = ("state, cost, servings, clock, turn", "return state or state_of(clock, turn), clock, turn")
_CALM: Final = Soak(24)  # long enough for two of the bursts that fill the queues whose fairness is checked
# Each node is frozen for longer than its lease while the other node continues to work.
_FROZEN: Final = Soak(28, ("stop_node a 5 8", "stop_node b 17 8"))
# The model test reports the first difference in a reply or in the place of a task. It finds most bugs within a hundred
# examples, and runs enough examples to find the others. For bugs that random steps did not find, `tests/machine` has a
# rule that aims at the bug.
_MODEL: Final = Tests(
    "tests/integration/protocol/test_model.py", "valkey", r"(?m)^E +(AssertionError: )?assert .*", examples=2000
)
_FLEETS: Final = "tests/simulation/test_fleet_simulation.py"
_EXPLAINED: Final = Tests("tests/integration/protocol/test_explain.py", "random_situations and valkey", r"assert .*")


@dataclass(frozen=True, slots=True)
class Mutation:
    """A bug that is put into a copy of the product, and the catcher that must find it."""

    name: str
    change: Change
    catcher: Catcher


def _wrong(*kinds: Wrong) -> frozenset[Wrong]:
    return frozenset(kinds)


MUTATIONS: Final = (
    Mutation(
        "no owner check: an owner that is not registered can claim",
        RedisAnswer("turn", "ZSCORE", "return '0'"),
        _MODEL,
    ),
    Mutation(
        "a connection sends a command again if no reply came in time",
        PythonFunction("rota.server.connection", "Connection._query", bugs.query_again),
        Soak(16, ("server_sleep server 6 6.5",), _wrong(Wrong.DUPLICATED, Wrong.PHANTOM, Wrong.DIED)),
    ),
    Mutation(
        "a token that a worker took from a doorbell is not passed on",
        PythonFunction("rota.protocol.store", "Store.turn", bugs.turn_without_tokens),
        _MODEL,
    ),
    Mutation(
        "no allow-oom: a full server refuses the fleet's turns",
        PythonFunction("rota.protocol.scripts", "load_script", bugs.turn_without_allow_oom),
        Soak(14, ("fill_memory server 7 6",), _wrong(Wrong.WAITED)),
    ),
    Mutation(
        "no grace: owners that could not renew during an outage are reaped after it",
        LuaFunction("sweep", "prolonged", "", "return 0"),
        Soak(20, ("long_outage server 5 8", "refuse a 12 3.6"), _wrong(Wrong.LEASE, Wrong.DUPLICATED)),
    ),
    Mutation(
        "reaped before waitpid: an owner's tasks are given back while its process still runs them",
        PythonFunction("rota_supervisor.master.core.tick", "perform", bugs.reap_workers_asked_to_leave),
        Soak(20, ("term_node a 5 3", "term_node b 10 3", "term_node a 15 3"), _wrong(Wrong.DUPLICATED, Wrong.LEASE)),
    ),
    Mutation(
        "the record of the last crash stays after the end of the task",
        LuaFunction("shared/ending", "clear_up", "id, flag", "free_unique_key(id, flag) return ''"),
        _MODEL,
    ),
    Mutation(
        "the memory of ends is trimmed too early: ends that must be remembered are dropped",
        LuaFunction("shared/ending", "seal", "known", "keep = math.floor(keep / 2) original(known)"),
        _MODEL,
    ),
    Mutation(
        "settle does not compare entries: it removes the head of the in-flight list, whatever it is",
        LuaFunction(
            "shared/settle",
            "settle_plain",
            "inflight, n",
            "local head = redis.call('LRANGE', inflight, 0, n - 1) redis.call('LTRIM', inflight, n, -1) return head",
        ),
        _MODEL,
    ),
    Mutation(
        "settle does not check the in-flight list: outcomes count even if the sender does not hold the task",
        RedisAnswer("shared/settle", "LREM", "return 1"),
        Soak(
            _FROZEN.seconds,
            _FROZEN.faults,
            _wrong(Wrong.COUNTERS, Wrong.LOST, Wrong.PHANTOM, Wrong.DUPLICATED, Wrong.LEFT),
        ),
    ),
    Mutation(
        "the fence is never up: a worker starts tasks even if its lease may be lost",
        PythonFunction("rota.child.child_process", "Fence.is_up", bugs.never_up),
        Soak(_FROZEN.seconds, _FROZEN.faults, _wrong(Wrong.DUPLICATED)),
    ),
    Mutation(
        "an enqueue that received no reply is repeated with another nonce",
        PythonFunction("rota.client.sender", "Sender._again", bugs.send_again_under_another_nonce),
        Soak(
            16,
            ("silence_replies producers 7 2.5", "silence_replies producers 12 2.5"),
            _wrong(Wrong.DUPLICATED, Wrong.PHANTOM),
        ),
    ),
    Mutation(
        "no event reports that a recalled task is back in its lane",
        LuaFunction("return_prefetched", "give_back", "e, at", "original(e, at) return false"),
        _MODEL,
    ),
    Mutation(
        "tasks are promoted 50 ms early",
        LuaFunction("promote", "redis_now", "", "return original() + 50000"),
        Soak(_CALM.seconds, (), _wrong(Wrong.EARLY)),
    ),
    Mutation(
        "the rotation is not charged: one queue is served again and again",
        LuaFunction("turn", "serve", *_FREE_SERVING),
        Soak(_CALM.seconds, (), _wrong(Wrong.FAIRNESS)),
    ),
    Mutation(
        "an explanation charges no queue for its claims: the same queue is next again and again",
        LuaFunction("explain", "serve", *_FREE_SERVING),
        _EXPLAINED,
    ),
    Mutation(
        "an explanation uses the results of conditions from before its first claim",
        LuaFunction("explain", "claim", "", "local answer = turn() return answer[5], answer[3]"),
        _EXPLAINED,
    ),
    Mutation(
        "a unique key is given to a second task while the first is still live",
        # The check in the script always concludes that the task with the key is not live.
        RedisAnswer("enqueue", "HEXISTS", "return 0"),
        _MODEL,
    ),
    Mutation(
        "the entry of a cancelled task counts as that of a later task with the same id",
        LuaFunction("shared/incarnations", "is_tombstone", "", "return false"),
        _MODEL,
    ),
    Mutation(
        "at most once: reaping a lost owner ignores that a task has started",
        LuaFunction(
            "reap",
            "let_go",
            "e",
            "if reason == 'expired' then e.flag = string.gsub(string.gsub(e.flag, 'b', ''), '^$', '-') end original(e)",
        ),
        Tests("tests/integration/protocol/test_at_most_once.py", "valkey and loss_of_its_node", r"assert .*"),
    ),
    Mutation(
        "at most once: a task is called even if the reply to `mark_started` was lost",
        PythonFunction("rota.tasks.claimed_call", "StartSteps._mark_started", bugs.begin_without_an_answer),
        Tests("tests/faults/test_network_lost_replies.py", "mark_started", r"assert .*"),
    ),
    Mutation(
        "a kill by the hard time limit is a crash, even if the task has another kill policy",
        PythonFunction("rota_supervisor.master.core.child_exit", "settlements_of", bugs.no_verdicts),
        Tests(
            "tests/unit/test_kill_policies.py",
            "task_over_its_hard_limit or retry_left",
            r"ValueError: not enough values .*",
        ),
    ),
    Mutation(
        "tasks that run beside the one that exceeded its limit are charged with the kill",
        PythonFunction("rota_supervisor.master.core.child_exit", "_ran", bugs.charge_all),
        Tests(
            "tests/unit/test_master_several_tasks.py",
            "only_the_task_that_exceeded_it or charges_only_the_cancelled_task",
            r"assert .*",
        ),
    ),
    Mutation(
        "if a worker with several tasks dies, one of them becomes dead, although any may be the cause",
        LuaFunction(
            "reap",
            "charge_entry",
            "e",
            "local record, is_last = original(e) return record, is_last or record and e.crashes >= crash_limit",
        ),
        Tests("tests/integration/protocol/test_owners.py", "valkey and only_if_it_ran_alone", r"assert .*"),
    ),
    Mutation(
        "a condition that fails opens its queue",
        LuaFunction(
            "shared/decider",
            "closed_for",
            "after, fault",
            "if fault then return { open = true } end return original(after)",
        ),
        _MODEL,
    ),
    Mutation(
        "a queue of a pattern that was empty starts at virtual time 0: queues that come and go starve the others",
        RedisAnswer(
            "shared/turns",
            "HMGET",
            "local states = original(command, key, ...) "
            "if string.find(key, ':times:', 1, true) then states[1] = false end return states",
        ),
        _MODEL,
    ),
    Mutation(
        "hours are compared the wrong way: a queue is open before them and closed during them",
        LuaFunction(
            "shared/decider",
            "by_hours",
            "text, now",
            "local found = original(text, now) if found.fault then return found end "
            "return found.open and closed_for(1) or { open = true }",
        ),
        _MODEL,
    ),
    Mutation(
        "the reply for a closed queue does not state when to try again",
        LuaFunction("shared/decider", "closed_for", "_, fault", "return original(0, fault)"),
        _MODEL,
    ),
    Mutation(
        "a queue of a pattern is not marked: its bell wakes a worker, which finds nothing",
        LuaFunction("shared/doorbell", "ring", "queue", "return ring_bells(queue)"),
        _MODEL,
    ),
    Mutation(
        "tasks are given back to the tail of the lane",
        RedisAnswer("shared/other_ends", "LPUSH", "return original('RPUSH', key, ...)"),
        _MODEL,
    ),
    Mutation(
        "a task with front=True goes to the tail of its lane",
        RedisAnswer("enqueue", "LPUSH", "return original('RPUSH', key, ...)"),
        _MODEL,
    ),
    Mutation(
        "waiting for a rate uses up a retry",
        LuaFunction("throttle", "ticket_text", "e", "e.failures = e.failures + 1 return original(e)"),
        _MODEL,
    ),
    Mutation(
        "a start does not count towards the rate of its task",
        RedisAnswer("throttle", "SET", "return true"),
        _MODEL,
    ),
    Mutation(
        "a recall does not check whether the running task that it names still runs",
        # If the running task is not found, all entries that the worker holds count as unstarted.
        RedisAnswer("return_prefetched", "LPOS", "return original(command, key, ...) or 0"),
        Tests(
            "tests/integration/protocol/test_return_prefetched.py", "after_the_workers_turn", r"assert before == after"
        ),
    ),
    Mutation(
        "clients that wait are not woken, and notice an end only when they query all tasks again",
        LuaFunction("shared/waiters", "wake_client", "", ""),
        Tests("tests/integration/test_client_waiting.py", "TestEnds and purge", r"WaitTimeout: task a has not ended"),
    ),
    Mutation(
        "each queue of a pattern has its own series, which stay in every slot forever",
        PythonFunction("rota.telemetry.metrics", "QueueLabels._of", bugs.own_label),
        Tests("tests/unit/test_recorder.py", "ten_thousand_queues", r"KeyError|assert .*"),
    ),
    Mutation(
        "the outcomes of a dead worker are not read from its slot",
        PythonFunction("rota_supervisor.master.core.child_exit", "died", bugs.died_without_outcomes),
        Tests("tests/e2e/test_claims_of_several.py", "no_finished_task_of_a_killed_worker", r"assert .*"),
    ),
    Mutation(
        "an adopted item also stays in its legacy list",
        LuaFunction(
            "adopt_legacy",
            "ask",
            "source, command, ...",
            "if command == 'LPOP' then return original(source, 'LRANGE', 0, (...) - 1) end "
            "return original(source, command, ...)",
        ),
        Tests("tests/integration/protocol/test_adopt_legacy.py", "valkey and with_their_ids_in_order", r"assert .*"),
    ),
    Mutation(
        "an item of a legacy list is popped before it becomes a task: a kill in between loses it",
        PythonFunction("rota.poller.rounds", "LegacyAdoption.step", bugs.adopt_in_two_steps),
        Tests("tests/faults/test_adoption.py", "valkey", r"the start of every item|assert .*"),
    ),
    Mutation(
        "items of a classic sorted set are adopted 50 ms early",
        LuaFunction("adopt_legacy", "redis_now", "", "return original() + 50000"),
        Tests("tests/e2e/test_adoption.py", "valkey and soon_after", r"assert .*"),
    ),
    Mutation(
        "two pollers that read the same schedule both enqueue its occurrences, and set the schedule back",
        RedisAnswer("advance", "HGET", "return ARGV[2]"),
        _MODEL,
    ),
    Mutation(
        "a schedule advances, but its occurrence is not enqueued",
        LuaFunction("advance", "put_occurrence", "", "return true"),
        _MODEL,
    ),
    Mutation(
        "an occurrence is not checked for overlap when it is due",
        LuaFunction("promote", "overlapped_by", "", "return nil"),
        _MODEL,
    ),
    Mutation(
        "a pause does not cancel occurrences that were enqueued ahead of time",
        LuaFunction("pause_schedule", "withdraw", "", ""),
        Tests("tests/integration/protocol/test_schedules.py", "valkey and pause_removes_future", r"assert .*"),
    ),
    Mutation(
        "a member that ends is counted, but does not leave its group",
        LuaFunction(
            "shared/following", "leave_group", "group, how, ids", "redis.pcall('HINCRBY', group_key(group), how, #ids)"
        ),
        _MODEL,
    ),
    Mutation(
        "a group ends with its last member, although it is not closed",
        LuaFunction("shared/following", "is_over", "_, left", "return left == 0"),
        _MODEL,
    ),
    Mutation(
        "a chain continues even if a task of it did not succeed",
        LuaFunction("shared/following", "goes_on", "_, rest", "return rest ~= ''"),
        _MODEL,
    ),
    Mutation(
        "a chain leaves its group before its next task joins, and the group may end in between",
        LuaFunction(
            "shared/following",
            "go_on",
            "id, group, rest, now",
            "leave_group(group, 'done', { id }) end_group_if_over(group, now) original(id, group, rest, now)",
        ),
        _MODEL,
    ),
    Mutation(
        "a group with dead members enqueues `then` instead of `on_dead`",
        LuaFunction(
            "shared/following",
            "end_group",
            "group, phase, now",
            "redis.call('HSET', group_key(group), 'on_dead', '') original(group, phase, now)",
        ),
        _MODEL,
    ),
    Mutation(
        "a node declares its first schedules forever, even after a reload",
        PythonFunction("rota_supervisor.master.core.redis_events", "note_declarations", bugs.declare_what_was_first),
        Tests(_FLEETS, "recovers_from_any_faults", "is declared instead of"),
    ),
    Mutation(
        "a reload ignores conditions: workers keep a queue closed after its condition was removed",
        PythonFunction("rota_supervisor.master.core.generations", "change_between", bugs.overlook_conditions),
        Tests(_FLEETS, "recovers_from_any_faults", "claims by .*, and its configuration says"),
    ),
    Mutation(
        "a preview of a reload shares mutable state with the running master",
        PythonFunction("rota_supervisor.master.core.state", "MasterState.detached", bugs.share_what_changes),
        Tests("tests/simulation/test_detached_states.py", "the_original", "reached the original"),
    ),
    Mutation(
        "a schedule is removed when one node drops it, although another still declares it",
        PythonFunction(
            "rota_supervisor.master.effects.master_redis", "ScheduleDeclarer.withdraw", bugs.withdraw_as_if_alone
        ),
        Tests(_FLEETS, "recovers_from_any_faults", "is removed, and . declares it"),
    ),
    Mutation(
        "the cap of a pattern does not apply to its queues",
        LuaFunction(
            "shared/tiers",
            "share_in",
            "domain, queue",
            "local share = original(domain, queue) if share.name ~= queue then share.cap = 0 end return share",
        ),
        _MODEL,
    ),
    Mutation(
        "a condition is evaluated for the pattern instead of the queue",
        LuaFunction(
            "shared/bounds",
            "condition_on",
            "bounds, share",
            "return decision_on(share.name, share.condition, bounds.now)",
        ),
        _MODEL,
    ),
    Mutation(
        "a queue of a pattern is forgotten while it has tasks",
        LuaFunction("shared/idle", "is_empty", "", "return true"),
        _MODEL,
    ),
    Mutation(
        "a queue of a pattern is forgotten, but its marks and times stay forever",
        LuaFunction("shared/idle", "forget_times", "", ""),
        _MODEL,
    ),
    Mutation(
        "the backlog of a paused queue adds workers",
        LuaFunction("scaling", "add_row", "queue", "may_be_closed = false return original(queue)"),
        Tests("tests/integration/protocol/test_scaling.py", "paused and valkey", r"assert .*"),
    ),
    Mutation(
        "a pool grows although its tasks fail",
        PythonFunction("rota_supervisor.master.core.scaling_rule", "_freezes", bugs.never_freeze),
        Tests("tests/scaling", "no_worker_is_added_while_tasks_fail", r"assert .*"),
    ),
)
