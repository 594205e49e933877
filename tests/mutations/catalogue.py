"""Known bugs, each with what has to catch it."""

from dataclasses import dataclass
from typing import Final

from mutations import bugs
from mutations.catchers import Catcher, Soak, Tests
from mutations.changes import Change, LuaFunction, PythonFunction, RedisAnswer
from soak.findings import Wrong

# A queue is served and its virtual time stays as it is, so it is chosen again.
_FREE_SERVING: Final = ("state, cost, servings, clock, turn", "return state or state_of(clock, turn), clock, turn")
_CALM: Final = Soak(24)  # with two bursts that fill the queues whose fairness is judged
# Each node is frozen for longer than its lease, while the other goes on.
_FROZEN: Final = Soak(28, ("stop_node a 5 8", "stop_node b 17 8"))
# The model test says the first answer or place that differs, whichever it is. It gets so many examples that what it can
# see it does see; most bugs fall among the first hundred. One that does not has a rule of `tests/machine` made for it.
_MODEL: Final = Tests(
    "tests/integration/protocol/test_model.py", "valkey", r"(?m)^E +(AssertionError: )?assert .*", examples=2000
)
_FLEETS: Final = "tests/simulation/test_fleet_simulation.py"
_EXPLAINED: Final = Tests("tests/integration/protocol/test_explain.py", "random_situations and valkey", r"assert .*")


@dataclass(frozen=True, slots=True)
class Mutation:
    """A bug, put into a copy of the product."""

    name: str
    change: Change
    catcher: Catcher


def _wrong(*kinds: Wrong) -> frozenset[Wrong]:
    return frozenset(kinds)


MUTATIONS: Final = (
    Mutation(
        "owner check removed: who is not registered claims all the same",
        RedisAnswer("turn", "ZSCORE", "return '0'"),
        _MODEL,
    ),
    Mutation(
        "client retries on: a connection sends a command again when no reply came in time",
        PythonFunction("rota.server.connection", "Connection._query", bugs.query_again),
        Soak(16, ("server_sleep server 6 6.5",), _wrong(Wrong.DUPLICATED, Wrong.PHANTOM, Wrong.DIED)),
    ),
    Mutation(
        "no chain of doorbells: a token that a worker swallowed is not passed on",
        PythonFunction("rota.protocol.store", "Store.turn", bugs.turn_without_tokens),
        _MODEL,
    ),
    Mutation(
        "no allow-oom: a full server refuses the fleet's turns",
        PythonFunction("rota.protocol.scripts", "load_script", bugs.turn_without_allow_oom),
        Soak(14, ("fill_memory server 7 6",), _wrong(Wrong.WAITED)),
    ),
    Mutation(
        "no grace: whoever could not renew during an outage is reaped after it",
        LuaFunction("sweep", "prolonged", "", "return 0"),
        Soak(20, ("long_outage server 5 8", "refuse a 12 3.6"), _wrong(Wrong.LEASE, Wrong.DUPLICATED)),
    ),
    Mutation(
        "reaped before waitpid: an owner's tasks are given back while its process still runs them",
        PythonFunction("rota_supervisor.master.core.tick", "perform", bugs.reap_workers_asked_to_leave),
        Soak(20, ("term_node a 5 3", "term_node b 10 3", "term_node a 15 3"), _wrong(Wrong.DUPLICATED, Wrong.LEASE)),
    ),
    Mutation(
        "an ended task leaves the record of its last crash behind",
        LuaFunction("shared/ending", "clear_up", "id, flag", "free_unique_key(id, flag) return ''"),
        _MODEL,
    ),
    Mutation(
        "the oldest text of the memory of ends is dropped too early: also when its ends are among the last to be known",
        LuaFunction("shared/ending", "seal", "known", "keep = math.floor(keep / 2) original(known)"),
        _MODEL,
    ),
    Mutation(
        "what a worker says is done is believed: whatever stands first in its in-flight list leaves it",
        LuaFunction(
            "shared/settle",
            "settle_plain",
            "inflight, n",
            "local head = redis.call('LRANGE', inflight, 0, n - 1) redis.call('LTRIM', inflight, n, -1) return head",
        ),
        _MODEL,
    ),
    Mutation(
        "the in-flight gate of settle removed: outcomes count for whoever sends them",
        RedisAnswer("shared/settle", "LREM", "return 1"),
        Soak(
            _FROZEN.seconds,
            _FROZEN.faults,
            _wrong(Wrong.COUNTERS, Wrong.LOST, Wrong.PHANTOM, Wrong.DUPLICATED, Wrong.LEFT),
        ),
    ),
    Mutation(
        "the fence is never up: a worker starts what it claimed though its lease may be lost",
        PythonFunction("rota.child.child_process", "Fence.is_up", bugs.never_up),
        Soak(_FROZEN.seconds, _FROZEN.faults, _wrong(Wrong.DUPLICATED)),
    ),
    Mutation(
        "an enqueue that got no answer is sent again under another nonce",
        PythonFunction("rota.client.sender", "Sender._again", bugs.send_again_under_another_nonce),
        Soak(
            16,
            ("silence_replies producers 7 2.5", "silence_replies producers 12 2.5"),
            _wrong(Wrong.DUPLICATED, Wrong.PHANTOM),
        ),
    ),
    Mutation(
        "a change untold: what is recalled is back in its lane, and no event says so",
        LuaFunction("return_prefetched", "give_back", "e, at", "original(e, at) return false"),
        _MODEL,
    ),
    Mutation(
        "promoted 50 ms early",
        LuaFunction("promote", "redis_now", "", "return original() + 50000"),
        Soak(_CALM.seconds, (), _wrong(Wrong.EARLY)),
    ),
    Mutation(
        "the rotation is not charged: one queue is served again and again",
        LuaFunction("turn", "serve", *_FREE_SERVING),
        Soak(_CALM.seconds, (), _wrong(Wrong.FAIRNESS)),
    ),
    Mutation(
        "an explanation charges no queue for what it claims, so the same one comes next again and again",
        LuaFunction("explain", "serve", *_FREE_SERVING),
        _EXPLAINED,
    ),
    Mutation(
        "an explanation goes by what a condition said before its first claim",
        LuaFunction("explain", "claim", "", "local answer = turn() return answer[5], answer[3]"),
        _EXPLAINED,
    ),
    Mutation(
        "a unique key is given to a second task while the first still lives",
        # The holder is looked for among what lives, and not found.
        RedisAnswer("enqueue", "HEXISTS", "return 0"),
        _MODEL,
    ),
    Mutation(
        "the entry of a cancelled task is taken for the task that followed under its id",
        LuaFunction("shared/incarnations", "is_tombstone", "", "return false"),
        _MODEL,
    ),
    Mutation(
        "at most once: who reaps a lost owner does not look whether a task has begun",
        LuaFunction(
            "reap",
            "let_go",
            "e",
            "if reason == 'expired' then e.flag = string.gsub(string.gsub(e.flag, 'b', ''), '^$', '-') end original(e)",
        ),
        Tests("tests/integration/protocol/test_at_most_once.py", "valkey and loss_of_its_node", r"assert .*"),
    ),
    Mutation(
        "at most once: a task is called without an answer to its beginning",
        PythonFunction("rota.tasks.claimed_call", "StartSteps._mark_started", bugs.begin_without_an_answer),
        Tests("tests/faults/test_network_lost_replies.py", "mark_started", r"assert .*"),
    ),
    Mutation(
        "a kill by the hard time limit is a crash, whatever the worker said would follow",
        PythonFunction("rota_supervisor.master.core.child_exit", "settlements_of", bugs.no_verdicts),
        Tests("tests/unit/test_kill_policies.py", "hard_limit or retry_left", r"ValueError: not enough values .*"),
    ),
    Mutation(
        "who runs beside the task that was over its limit is charged with the kill",
        PythonFunction("rota_supervisor.master.core.child_exit", "_ran", bugs.charge_all),
        Tests(
            "tests/unit/test_master_several_tasks.py",
            "only_the_task_that_exceeded_it or charges_only_that_task",
            r"assert .*",
        ),
    ),
    Mutation(
        "of several that ran when their worker died one is dead of it, though nobody knows that it was that one",
        LuaFunction(
            "reap",
            "charge_entry",
            "e",
            "local record, is_last = original(e) return record, is_last or record and e.crashes >= crash_limit",
        ),
        Tests("tests/integration/protocol/test_owners.py", "valkey and only_after_a_crash_alone", r"assert .*"),
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
        "a queue of a pattern that was empty starts at 0, not at the clock: whoever comes and goes starves the others",
        RedisAnswer(
            "shared/turns",
            "HMGET",
            "local states = original(command, key, ...) "
            "if string.find(key, ':times:', 1, true) then states[1] = false end return states",
        ),
        _MODEL,
    ),
    Mutation(
        "hours are compared the wrong way: open before they begin and closed within",
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
        "who finds a queue closed is not told when to look again",
        LuaFunction("shared/decider", "closed_for", "_, fault", "return original(0, fault)"),
        _MODEL,
    ),
    Mutation(
        "a queue of a pattern is not marked: who rings for it is heard, and finds nothing",
        LuaFunction("shared/doorbell", "ring", "queue", "return ring_bells(queue)"),
        _MODEL,
    ),
    Mutation(
        "given back to the tail of the lane",
        RedisAnswer("shared/other_ends", "LPUSH", "return original('RPUSH', key, ...)"),
        _MODEL,
    ),
    Mutation(
        "a front goes to the tail of its lane",
        RedisAnswer("enqueue", "LPUSH", "return original('RPUSH', key, ...)"),
        _MODEL,
    ),
    Mutation(
        "a task that waits for its rate has spent a retry",
        LuaFunction("throttle", "ticket_text", "e", "e.failures = e.failures + 1 return original(e)"),
        _MODEL,
    ),
    Mutation(
        "a start is not counted for the rate of its task",
        RedisAnswer("throttle", "SET", "return true"),
        _MODEL,
    ),
    Mutation(
        "a recall does not look whether the task it names still runs",
        # Behind nothing, everything the worker holds counts as unstarted.
        RedisAnswer("return_prefetched", "LPOS", "return original(command, key, ...) or 0"),
        Tests("tests/integration/protocol/test_return_prefetched.py", "after_the_turn", r"assert before == after"),
    ),
    Mutation(
        "who waits is not woken, and learns of an end when it asks all again",
        LuaFunction("shared/waiters", "wake_client", "", ""),
        Tests("tests/integration/test_client_waiting.py", "TestEnds and purge", r"WaitTimeout: task a has not ended"),
    ),
    Mutation(
        "each queue of a pattern has series of its own, in every slot for ever",
        PythonFunction("rota.telemetry.metrics", "QueueLabels._of", bugs.own_label),
        Tests("tests/unit/test_recorder.py", "ten_thousand_queues", r"KeyError|assert .*"),
    ),
    Mutation(
        "what a dead worker had finished is not read from its slot",
        PythonFunction("rota_supervisor.master.core.child_exit", "died", bugs.died_without_outcomes),
        Tests("tests/e2e/test_claims_of_several.py", "no_finished_task_of_a_killed_worker", r"assert .*"),
    ),
    Mutation(
        "what is adopted from a legacy list stays there too",
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
        "an item of a legacy list is popped first and becomes a task then: a kill in between takes it along",
        PythonFunction("rota.poller.rounds", "LegacyAdoption.step", bugs.adopt_in_two_steps),
        Tests("tests/faults/test_adoption.py", "valkey", r"the start of every item|assert .*"),
    ),
    Mutation(
        "what waits in a classic sorted set is adopted 50 ms early",
        LuaFunction("adopt_legacy", "redis_now", "", "return original() + 50000"),
        Tests("tests/e2e/test_adoption.py", "valkey and soon_after", r"assert .*"),
    ),
    Mutation(
        "two pollers that read the same schedule both enqueue its occurrences, and set what follows back",
        RedisAnswer("advance", "HGET", "return ARGV[2]"),
        _MODEL,
    ),
    Mutation(
        "a schedule goes on to what follows, and its occurrence is not enqueued",
        LuaFunction("advance", "put_occurrence", "", "return true"),
        _MODEL,
    ),
    Mutation(
        "whether an occurrence overlaps is not looked at when its time has come",
        LuaFunction("promote", "overlapped_by", "", "return nil"),
        _MODEL,
    ),
    Mutation(
        "a pause leaves what was enqueued ahead of its time",
        LuaFunction("pause_schedule", "withdraw", "", ""),
        Tests("tests/integration/protocol/test_schedules.py", "valkey and pause_removes_future", r"assert .*"),
    ),
    Mutation(
        "a member that ends is counted, and does not leave its group",
        LuaFunction(
            "shared/following", "leave_group", "group, how, ids", "redis.pcall('HINCRBY', group_key(group), how, #ids)"
        ),
        _MODEL,
    ),
    Mutation(
        "a group ends with its last member though it is not closed",
        LuaFunction("shared/following", "is_over", "_, left", "return left == 0"),
        _MODEL,
    ),
    Mutation(
        "a chain goes on however the task before ended",
        LuaFunction("shared/following", "goes_on", "_, rest", "return rest ~= ''"),
        _MODEL,
    ),
    Mutation(
        "a chain leaves its group before the next of its tasks has joined it, and the group is looked at between",
        LuaFunction(
            "shared/following",
            "go_on",
            "id, group, rest, now",
            "leave_group(group, 'done', { id }) end_group_if_over(group, now) original(id, group, rest, now)",
        ),
        _MODEL,
    ),
    Mutation(
        "what follows a group whose members are dead is what would follow if none were",
        LuaFunction(
            "shared/following",
            "end_group",
            "group, phase, now",
            "redis.call('HSET', group_key(group), 'on_dead', '') original(group, phase, now)",
        ),
        _MODEL,
    ),
    Mutation(
        "what a node declared first it declares for ever, whatever is reloaded",
        PythonFunction("rota_supervisor.master.core.redis_events", "note_declarations", bugs.declare_what_was_first),
        Tests(_FLEETS, "recovers_from_any_faults", "is declared instead of"),
    ),
    Mutation(
        "a reload does not look at conditions: workers keep a queue closed whose condition was removed",
        PythonFunction("rota_supervisor.master.core.generations", "change_between", bugs.overlook_conditions),
        Tests(_FLEETS, "recovers_from_any_faults", "claims by .*, and its configuration says"),
    ),
    Mutation(
        "a preview of a reload shares what can change with the master that runs",
        PythonFunction("rota_supervisor.master.core.state", "MasterState.detached", bugs.share_what_changes),
        Tests("tests/simulation/test_detached_states.py", "change_the_original", "reached the original"),
    ),
    Mutation(
        "a schedule goes at once when one node drops it, though another still declares it",
        PythonFunction(
            "rota_supervisor.master.effects.master_redis", "ScheduleDeclarer.withdraw", bugs.withdraw_as_if_alone
        ),
        Tests(_FLEETS, "recovers_from_any_faults", "is removed, and . declares it"),
    ),
    Mutation(
        "a queue of a pattern escapes its cap",
        LuaFunction(
            "shared/tiers",
            "share_in",
            "domain, queue",
            "local share = original(domain, queue) if share.name ~= queue then share.cap = 0 end return share",
        ),
        _MODEL,
    ),
    Mutation(
        "a condition is asked about the pattern, not about the queue that is known by it",
        LuaFunction(
            "shared/bounds",
            "condition_on",
            "bounds, share",
            "return decision_on(share.name, share.condition, bounds.now)",
        ),
        _MODEL,
    ),
    Mutation(
        "a queue of a pattern is forgotten while something of it waits",
        LuaFunction("shared/idle", "is_empty", "", "return true"),
        _MODEL,
    ),
    Mutation(
        "a queue of a pattern is forgotten, and its marks and times stay for ever",
        LuaFunction("shared/idle", "forget_times", "", ""),
        _MODEL,
    ),
)
