"""Conditions: when a queue is open, and how many commands a condition costs. A condition that fails affects no other
queue.
"""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rota.protocol.nodes import Announced
from rota.protocol.outcome import Done
from rota.protocol.tiers import QueueCondition, QueueShare, domain_of, pack_limits, pack_tiers, text_of_hours
from rota.protocol.turns import Turn, TurnReply
from rota.protocol.views import ClosedQueue, QueueState
from rota.protocol.wire import Packed
from rota_supervisor.config.conditions import FUNCTIONS, GIVEN, check_chunk
from support.protocol import LEASE_MS, Fleet, body_of, tiers

MINUTE_US = 60_000_000
TTL_MS = 60_000
NAME = "when"
SHARE = QueueShare("q", condition=NAME)
SERVING = tiers([SHARE, QueueShare("other")])


def define(fleet: Fleet, *conditions: QueueCondition, ttl_ms: int = TTL_MS) -> tuple[ClosedQueue, ...]:
    """Define these conditions as masters do, which repeat this regularly. Returns the queues that are closed."""
    fleet.run(fleet.store.announce("node", b"{}", TTL_MS, ["q", "other"], Announced(shares=(SHARE,))))
    return fleet.run(fleet.store.check_conditions(ttl_ms, conditions))


def lua(text: str) -> QueueCondition:
    return QueueCondition(NAME, "lua", text)


def hours(fleet: Fleet, *minutes: tuple[float, float], known: float = 60) -> QueueCondition:
    """Return a condition with opening hours, which are given as pairs: when the queue opens and when it closes, in
    minutes from now. The opening hours are known for the next `known` minutes.
    """
    now = fleet.now_us()
    intervals = [(now + round(start * MINUTE_US), now + round(end * MINUTE_US)) for start, end in minutes]
    return QueueCondition(NAME, "hours", text_of_hours(now + round(known * MINUTE_US), intervals))


def turn(fleet: Fleet, serving: Packed = SERVING, limit: int = 10) -> TurnReply:
    return fleet.turn(fleet.register(), serving, limit=limit)


def state(fleet: Fleet) -> QueueState:
    return next(queue for queue in fleet.run(fleet.store.overview(["q"])).queues if queue.queue == "q")


def ids(reply: TurnReply) -> list[str]:
    return [claim.entry.id for claim in reply.claims]


@pytest.mark.parametrize(
    ("text", "is_open"),
    [
        ("return ready >= 2", True),
        ("return ready > 2", False),
        ("return delayed == 1", True),
        ("return running == 0", True),
        ('return queue == "q"', True),
        ("return now > 1700000000 and now < 4000000000", True),
        ("local half = math.floor(ready / 2)\nif half == 1 then return true else return false end", True),
    ],
)
def test_a_lua_condition_sees_its_queue_and_the_time_of_redis(fleet: Fleet, text: str, is_open: bool) -> None:
    define(fleet, lua(text))
    fleet.push("a", "b")
    fleet.push("later", due="+3600000000")
    assert bool(turn(fleet).claims) is is_open


def test_a_queue_within_its_hours_is_claimed_from_as_usual(fleet: Fleet) -> None:
    define(fleet, hours(fleet, (-60, -30), (-1, 10)))
    fleet.push("a", "b")
    assert ids(turn(fleet)) == ["a", "b"]


def test_a_claim_returns_when_a_closed_queue_opens_and_serves_the_others(fleet: Fleet) -> None:
    define(fleet, hours(fleet, (-60, -30), (0.5, 10)))
    fleet.push("a")
    reply = turn(fleet)
    assert not reply.claims
    assert 0 < reply.wait_us <= MINUTE_US / 2
    fleet.push("b", queue="other")
    assert ids(turn(fleet)) == ["b"]


def test_a_closed_queue_without_tasks_does_not_set_a_wake_up_time(fleet: Fleet) -> None:
    define(fleet, hours(fleet, (0.5, 10)))
    fleet.push("b", queue="other")
    assert turn(fleet).wait_us == 0


def test_a_queue_is_closed_until_a_master_has_published_its_hours(fleet: Fleet) -> None:
    define(fleet, hours(fleet, (-60, -30), known=-1))
    fleet.push("a")
    assert not turn(fleet).claims
    assert "no master has published its hours" in state(fleet).condition_error


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("return ready + nil", "attempt to perform arithmetic on a nil value"),
        ("return 1", "returned number"),
        ("local x = 1", "returned nil"),
        ("return queue < 1", "attempt to compare"),
        ("return math.floor(queue)", "number expected, got string"),
        ("return (", "unexpected symbol"),
        ("return " + "(" * 300 + "1" + ")" * 300, "too many"),
    ],
)
def test_a_condition_with_an_error_closes_its_queue_and_is_reported(fleet: Fleet, text: str, said: str) -> None:
    define(fleet, lua(text))
    fleet.push("a")
    fleet.push("b", queue="other")
    assert ids(turn(fleet)) == ["b"]
    shown = state(fleet)
    assert shown.closed_by == NAME
    assert said in shown.condition_error
    [closed] = define(fleet, lua(text))
    assert (closed.queue, closed.closed_by, closed.error) == ("q", NAME, shown.condition_error)


def test_a_queue_with_an_undefined_condition_is_closed(fleet: Fleet) -> None:
    define(fleet, QueueCondition("another", "lua", "return true"))
    fleet.push("a")
    assert not turn(fleet).claims
    assert state(fleet).condition_error == "no master has defined it"


def test_conditions_that_masters_no_longer_define_are_deleted(fleet: Fleet) -> None:
    define(fleet, lua("return true"), ttl_ms=0)
    define(fleet)
    assert not fleet.redis.exists(fleet.keys.conditions)


def test_a_condition_on_the_running_count_admits_one_task_at_a_time(fleet: Fleet) -> None:
    define(fleet, lua("return running < 1"))
    fleet.push("a", "b")
    owner = fleet.register()
    as_many_as = Turn(1, limits=pack_limits({"q": 10}))  # up to 10 tasks per claim, as for a queue with short tasks
    [claim] = fleet.run(fleet.store.turn(owner, SERVING, as_many_as)).claims
    assert turn(fleet).wait_us == 1_000_000, "it may open at any time, so it is checked again in a second"
    fleet.redis.delete(fleet.keys.doorbell("q"))
    reply = fleet.turn(owner, SERVING, (claim, Done()), limit=0)
    assert not reply.stale
    assert fleet.redis.llen(fleet.keys.doorbell("q")) == 1, "a worker is woken because another task may run"
    assert ids(turn(fleet)) == ["b"]


@pytest.mark.parametrize("after_ms", [3, 49, 50, 51, 333, 700, 949])
def test_a_claim_returns_when_a_condition_on_the_clock_will_open(fleet: Fleet, after_ms: int) -> None:
    fleet.push("a")
    opens_us = fleet.now_us() + 1000 * after_ms + 5_000_000
    define(fleet, lua(f"return now + 5 >= {opens_us / 1e6:.6f}"))
    reply = turn(fleet)
    left_us = opens_us - 5_000_000 - reply.now_us
    assert ids(reply) or max(1, left_us) <= reply.wait_us <= max(0, left_us) + 1000


@pytest.mark.parametrize("text", ["return now < 0", "return ready > 5", "return now < 0" + " " * 1000])
def test_a_condition_that_does_not_open_soon_is_checked_again_in_a_second(fleet: Fleet, text: str) -> None:
    define(fleet, lua(text))
    fleet.push("a")
    assert turn(fleet).wait_us == 1_000_000


def test_workers_are_not_woken_for_a_closed_queue(fleet: Fleet) -> None:
    """If they were woken, workers would wake each other endlessly although none of them can claim the task."""
    define(fleet, lua("return false"))
    fleet.push("a")
    fleet.redis.delete(fleet.keys.doorbell("q"))
    fleet.turn(fleet.register(), SERVING, tokens=["q"])
    assert not fleet.redis.exists(fleet.keys.doorbell("q"))


@pytest.mark.parametrize(("seconds", "rung"), [(0.9, 1), (60, 0)])
def test_a_sweep_wakes_workers_of_a_closed_queue_only_if_it_opens_soon(fleet: Fleet, seconds: float, rung: int) -> None:
    define(fleet, lua(f"return now >= {fleet.now_us() / 1_000_000 + seconds:.6f}"))
    fleet.redis.rpush(fleet.keys.ready_lane("q"), body_of("a", "q"))
    swept = fleet.run(fleet.store.sweep(LEASE_MS))
    assert (fleet.bell(), swept.rescues) == (rung, 0)
    assert turn(fleet).claims == ()


def test_the_time_at_which_a_queue_closed_is_kept_until_the_next_claim(fleet: Fleet) -> None:
    define(fleet, lua("return false"))
    fleet.push("a")
    define(fleet, lua("return false"))
    first = fleet.redis.hget(fleet.keys.closed, "q")
    [closed] = define(fleet, lua("return false"))
    assert fleet.redis.hget(fleet.keys.closed, "q") == first
    assert 0 < closed.closed_age_us <= state(fleet).closed_age_us
    fleet.run(fleet.store.check_conditions(TTL_MS, [lua("return true")]))
    # Simulates a queue that opens after the turn has found it closed.
    fleet.redis.hset(fleet.keys.closed, "q", first)
    assert ids(turn(fleet)) == ["a"]
    assert not fleet.redis.exists(fleet.keys.closed)


def test_a_closed_queue_without_tasks_is_shown_as_closed(fleet: Fleet) -> None:
    assert define(fleet, lua("return false")) == ()
    assert state(fleet).closed_by == NAME
    assert state(fleet).closed_age_us == 0


def test_the_time_at_which_a_queue_was_paused_is_kept_until_it_is_resumed(fleet: Fleet) -> None:
    fleet.run(fleet.store.pause("q"))
    [closed] = define(fleet)
    assert (closed.queue, closed.closed_by) == ("q", "")
    assert state(fleet).closed_age_us > 0
    fleet.run(fleet.store.resume("q"))
    assert define(fleet) == ()
    assert not fleet.redis.exists(fleet.keys.closed)


def test_a_consumer_receives_the_condition_of_its_queue(fleet: Fleet) -> None:
    define(fleet, lua("return false"))
    told = fleet.run(fleet.store.attend(TTL_MS, fleet.register(), ["q", "other"]))
    assert told.shares == (SHARE, QueueShare("other"))


def test_a_condition_that_writes_a_global_closes_its_queue(fleet: Fleet) -> None:
    """A condition that names a global is refused. If another program has stored such a condition, its queue stays
    closed.
    """
    define(fleet, lua("other = 1 return true"))
    fleet.push("a")
    assert not turn(fleet).claims
    assert "modify a readonly table" in state(fleet).condition_error


@pytest.mark.parametrize(
    "planted", ["", "nonsense", "9 lua", "9 hours x", "9 hours " + "9" * 400, "9 lua return " * 9999]
)
def test_an_overwritten_condition_closes_only_its_own_queue(fleet: Fleet, planted: str) -> None:
    define(fleet)
    fleet.push("a")
    fleet.push("b", queue="other")
    fleet.redis.hset(fleet.keys.conditions, NAME, planted)
    assert ids(turn(fleet)) == ["b"]
    define(fleet, hours(fleet, (-1, 1)))
    assert ids(turn(fleet)) == ["a"], "the next round of a master repairs it"


def test_a_condition_is_evaluated_for_each_queue_of_a_pattern(fleet: Fleet) -> None:
    share = QueueShare("t-*", condition=NAME)
    domain = domain_of([share])
    announced = Announced(shares=(share,), domains=(domain,))
    fleet.run(fleet.store.announce("node", b"{}", TTL_MS, ["t-*"], announced))
    fleet.run(fleet.store.check_conditions(TTL_MS, [lua("return ready >= 2")]))
    fleet.push("a", queue="t-few")
    fleet.push("b", "c", queue="t-many")
    serving = pack_tiers([domain])
    assert ids(turn(fleet, serving, limit=1)) == ["b"]
    [closed] = fleet.run(fleet.store.check_conditions(TTL_MS, [lua('return queue == "t-many"')]))
    assert (closed.queue, closed.closed_by) == ("t-few", NAME)
    assert ids(turn(fleet, serving, limit=1)) == ["c"]
    reply = turn(fleet, serving)
    assert (ids(reply), 0 < reply.wait_us <= 1_000_000) == ([], True)
    told = fleet.run(fleet.store.attend(TTL_MS, fleet.register(), ["t-few"]))
    assert told.shares == (QueueShare("t-few", condition=NAME),)


_NAMES = st.sampled_from([*GIVEN, "1", "2.5e3", '"text"', "true", "false", "nil"])
_EXPRESSIONS = st.recursive(
    _NAMES,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["and", "or", "==", "~=", "<", ">=", "+", "-", "*", "/", "%"]), inner).map(
            " ".join
        ),
        st.tuples(st.sampled_from(["not", "-"]), inner).map(" ".join),
        inner.map("({})".format),
        st.tuples(st.sampled_from(FUNCTIONS), inner, inner).map(lambda parts: "math.{}({}, {})".format(*parts)),
    ),
)
_CHUNKS = st.recursive(
    _EXPRESSIONS.map("return {}".format),
    lambda inner: st.tuples(_EXPRESSIONS, inner, inner).map(
        lambda parts: "local x = {0}\nif x then {1} elseif {0} then {1} else {2} end".format(*parts)
    ),
    max_leaves=6,
)


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(chunks=st.lists(_CHUNKS, min_size=5, max_size=20))
def test_every_accepted_lua_condition_compiles_on_the_server(fleet: Fleet, chunks: list[str]) -> None:
    sent = [chunk for text in chunks if (chunk := _checked(text))]
    compiled = fleet.redis.eval(
        "local ok = {} for i, text in ipairs(ARGV) do ok[i] = loadstring(text) and 1 or 0 end return ok", 0, *sent
    )
    assert [text for text, is_lua in zip(sent, compiled, strict=True) if not is_lua] == []


def _checked(text: str) -> str:
    """Return the text of a condition, or "" if the text is too long or too deeply nested for the server."""
    try:
        return check_chunk(text)
    except ValueError:
        return ""
