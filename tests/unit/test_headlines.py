"""The headlines of a fleet's status. Each cause has its own headline, which comes before the headlines of its
consequences.
"""

from collections.abc import Callable
from typing import Any

import pytest

from rota_supervisor.exporter.headlines import MOST, headlines
from rota_supervisor.master_snapshot import EVICTS_KEYS
from support.fleet_status import HELD, KILLED, NOW, POOL, Status, death, event, healthy, late_by, process, queue, task

ALL_BUSY = "all workers are busy (1): tasks arrive faster than they are run"


def check(name: str, seen: str) -> Callable[[Status], None]:
    """Return a function that adds a failed check of /readyz to a status."""

    def change(status: Status) -> None:
        status["ready"] = {"ok": False, "checks": [{"name": name, "ok": False, "seen": seen}]}

    return change


def with_(**changes: Any) -> Callable[[Status], None]:
    return lambda status: status.update(changes)


LATE = queue() | late_by(94.0)
WAS_LATE = queue() | late_by(42.0, seconds_ago=240.0)
FAILING = queue(dead=12)
FAILING["attempts"] = {"done": 6, "failed": 34}
CANCELLED = queue()  # no task has failed: all tasks are done, cancelled or running
CANCELLED["history"] = CANCELLED["history"] | {"started": [20, 20], "done": [5, 1]}
CANCELLED["attempts"] = {"done": 6, "failed": 0}

IS_QUIET = [("master_serves", "the master is quiet"), ("worker_serves", "0 of 1 workers serve")]
QUIET = {"ok": False, "checks": [{"name": name, "ok": False, "seen": seen} for name, seen in IS_QUIET]}

CASES: list[tuple[Callable[[Status], None], str, str, str]] = [
    (with_(), "good", "all is well: 1 worker, 1 queue, no queue is late", "fleet"),
    (
        with_(events=[death(200, task="img.cut"), death(100, task="img.cut"), death(10, task="img.cut")]),
        "bad",
        f"3 processes died in the last 5 m, 3 of them in task img.cut; the last: {KILLED}",
        "workers/8",
    ),
    (
        with_(events=[death(12)]),
        "warn",
        f"12 s ago: {KILLED}",
        "workers/8",
    ),
    (with_(events=[death(120)]), "good", "all is well", "fleet"),
    (
        with_(processes=[process(8, "worker", task(task_age_seconds=312.0, usual_seconds=2.0))]),
        "bad",
        "worker 8 has run mail.send for 5 m 12 s, usually at most 2.0 s; it has no limit",
        "workers/8",
    ),
    (
        with_(processes=[process(8, "worker", task(task_age_seconds=912.0, limit_seconds=3600.0))]),
        "bad",
        "worker 8 has run mail.send for 15 m 12 s, its usual run time is not known, and its limit is 1 h",
        "workers/8",
    ),
    (
        with_(processes=[process(8, "worker", task(task_age_seconds=312.0, limit_seconds=600.0))]),
        "good",
        "all is well",
        "fleet",
    ),
    (
        check("redis", "the master does not reach Redis"),
        "bad",
        "Redis does not respond: no task starts, but running tasks continue",
        "redis",
    ),
    (
        with_(nodes=[{"node": "b", "state": "lost", "seen_seconds_ago": 34.0}]),
        "bad",
        "node b has sent no heartbeat for 34 s: the other nodes run its tasks",
        "nodes/b",
    ),
    (
        check("worker_serves", "there is no worker"),
        "bad",
        "there is no worker, no heartbeat for 0.1 s: no task starts",
        "workers/8",
    ),
    (
        check("poller_serves", "0 of 1 pollers serve"),
        "bad",
        "0 of 1 pollers serve, no heartbeat for 0.1 s: scheduled tasks are late",
        "workers/2",
    ),
    (
        with_(queues=[queue(served=False, ready=7, oldest_ready_age_seconds=94.0)]),
        "bad",
        "queue mail: no worker serves it, 7 tasks waiting, the oldest for 1 m 34 s",
        "queues/mail",
    ),
    (
        with_(queues=[LATE], processes=[process(8, "worker", task())]),
        "bad",
        f"queue mail is late: 1 m 34 s, but its objective is 5.0 s; {ALL_BUSY}",
        "queues/mail",
    ),
    (
        with_(queues=[{**LATE, "state": {**LATE["state"], "inflight": 1}}]),  # the worker is between two tasks
        "bad",
        f"queue mail is late: 1 m 34 s, but its objective is 5.0 s; {ALL_BUSY}",
        "queues/mail",
    ),
    (
        with_(queues=[LATE]),
        "bad",
        "queue mail is late: 1 m 34 s, but its objective is 5.0 s; 0 of 1 worker slots are busy",
        "queues/mail",
    ),
    (
        with_(
            queues=[LATE],
            pools=[POOL | {"busy": 1}, POOL | {"name": "fast"}],
            processes=[process(8, "worker", task()), process(9, "worker") | {"pool": "fast"}],
        ),
        "bad",
        "queue mail is late: 1 m 34 s, but its objective is 5.0 s; all workers of pool default are busy",
        "queues/mail",
    ),
    (
        with_(queues=[WAS_LATE]),
        "warn",
        "queue mail was late until 13:42:40 UTC: 42 s, but its objective is 5.0 s",
        "queues/mail",
    ),
    (
        with_(queues=[FAILING]),
        "bad",
        "queue mail: 34 of 40 attempts failed in the last 5 m, 12 dead tasks",
        "queues/mail",
    ),
    (with_(queues=[CANCELLED]), "good", "all is well", "fleet"),
    (with_(queues=[queue(dead=1)]), "warn", "queue mail holds 1 dead task", "queues/mail"),
    (
        with_(held=[HELD]),
        "bad",
        (
            "pool default is in fatal: 9 failures in a row, next try in 3 s; last error: hook on_worker_start failed: "
            "no key"
        ),
        "pools/default",
    ),
    (
        with_(last_reload={"result": "failure", "faults": ["workers: expected a number"], "at": NOW - 180}),
        "warn",
        "the last reload was refused 3 m ago: workers: expected a number",
        "fleet",
    ),
    (
        with_(queues=[queue(paused=True, closed_age_seconds=7380.0, ready=3, oldest_ready_age_seconds=7000.0)]),
        "warn",
        "queue mail has been paused for 2 h 3 m, 3 tasks waiting, the oldest for 1 h 56 m",
        "queues/mail",
    ),
    (
        with_(queues=[queue(closed_by="hours", condition_error="hours:1: no such variable")]),
        "bad",
        "queue mail: its condition hours fails: hours:1: no such variable",
        "queues/mail",
    ),
    (
        with_(events=[event("pool.backoff", 3, pool="mail", failures=3, words="exited with code 1")]),
        "good",  # the event alone causes no headline: a pool has one only while the starts of its workers are delayed
        "all is well",
        "fleet",
    ),
    (
        with_(log_lines_dropped=7, log_lines_failed=7),
        "warn",
        "7 log lines lost: the disk is full, or the reader of the log has exited",
        "log",
    ),
    (with_(redis_round_trip_seconds=0.0514), "warn", "Redis is slow: 51 ms per round trip", "redis"),
    (
        with_(redis_round_trip_seconds=0.904, queue_states_age_seconds=7.2),
        "bad",
        "Redis is slow: 904 ms per round trip; queues are shown as they were 7.2 s ago",
        "redis",
    ),
    (with_(redis_round_trip_seconds=0.039), "good", "all is well", "fleet"),
    (
        with_(queue_states_age_seconds=None),
        "warn",
        "the state of 1 queue is not known: Redis has not returned it",
        "redis",
    ),
    (
        with_(queue_states_age_seconds=None, redis_asked=False),
        "good",
        "all is well here: 1 worker, 1 queue; this node does not query Redis, so waiting tasks are not known",
        "fleet",
    ),
    (
        with_(evicts_keys=True),
        "bad",
        f"{EVICTS_KEYS}, so tasks may be lost: set its maxmemory-policy to noeviction",
        "redis",
    ),
    (with_(unplaced_tasks=1), "bad", "1 live task in no lane, so no worker will run it: see rota audit", "fleet"),
    (with_(missing_tasks=-1), "bad", "1 task more have ended than were accepted: see rota audit", "fleet"),
    (with_(orphans=2), "warn", "2 in-flight lists without a registered owner", "fleet"),
    (
        with_(queues=[queue(overdue=3, oldest_overdue_age_seconds=12.0)]),
        "bad",
        "queue mail: 3 due tasks not promoted, the oldest of them was due 12 s ago",
        "queues/mail",
    ),
    (
        with_(
            queues=[
                queue(ready=7, oldest_ready_age_seconds=94.0, objective=300.0)
                | {"history": {"started": [0, 0], "done": [0, 0], "p50": [], "p99": []}}
            ]
        ),
        "bad",
        "queue mail: no task has been claimed from it for 2 m, 7 tasks waiting, the oldest for 1 m 34 s",
        "queues/mail",
    ),
    (
        # These items were pushed without the client, so it is not known how long they have been waiting.
        with_(queues=[queue(served=False, ready=7)]),
        "bad",
        "queue mail: no worker serves it, 7 tasks waiting",
        "queues/mail",
    ),
    (
        with_(queues=[queue(closed_by="hours", closed_age_seconds=7380.0, ready=1, oldest_ready_age_seconds=7000.0)]),
        "warn",
        "queue mail has been closed by its condition hours for 2 h 3 m, 1 task waiting, the oldest for 1 h 56 m",
        "queues/mail",
    ),
    (
        with_(pools=[POOL | {"workers": {"running": 1, "booting": 3}, "short_seconds": 42.0}]),
        "warn",
        "pool default has had only 1 of 4 workers for 42 s",
        "pools/default",
    ),
    (
        with_(events=[death(seconds) for seconds in (590, 480, 370, 310, 140, 80)]),
        "bad",
        f"6 processes died in the last 10 m; the last: {KILLED}",
        "workers/8",
    ),
    (
        with_(processes=[process(8, "worker", task(task_age_seconds=1900.0, usual_seconds=600.0))]),
        "bad",
        "worker 8 has run mail.send for 31 m 40 s, usually at most 10 m; it has no limit",
        "workers/8",
    ),
    (
        with_(adopt_errors={"old": 2}),
        "bad",
        "adoption from the legacy list old failed 2 times in 15 m",
        "fleet",
    ),
    (
        with_(missed_occurrences={"nightly": 1}),
        "warn",
        "schedule nightly: 1 occurrence missed in the last 15 m",
        "fleet",
    ),
    (
        with_(series_dropped=3),
        "warn",
        "3 label sets over the limit of series, now counted as _other: see [metrics] max_series",
        "fleet",
    ),
    (with_(log_lines_dropped=7), "warn", "7 log lines lost: the reader of the log is too slow", "log"),
    (
        with_(clock_offset_seconds=-90.0),
        "warn",
        "the clock of this machine is 1 m 30 s ahead of that of Redis",
        "redis",
    ),
    (with_(missing_tasks=2), "bad", "2 accepted tasks not accounted for: see rota audit", "fleet"),
    (with_(quiet_seconds=90.0), "warn", "this node has been quiet for 1 m 30 s: it starts no tasks", "fleet"),
    (
        with_(quiet_seconds=90.0, ready=QUIET, queues=[queue() | late_by(94.0)]),
        "bad",
        "this node has been quiet for 1 m 30 s: it starts no tasks",
        "fleet",
    ),
    (
        check("master_serves", "the master is draining"),
        "warn",
        "this node accepts no new tasks: the master is draining",
        "fleet",
    ),
    (
        check("master_beats", "last heartbeat 9.0 s ago, limit 3 s"),
        "bad",
        "the master sends no heartbeats: last heartbeat 9.0 s ago, limit 3 s",
        "fleet",
    ),
]


@pytest.mark.parametrize(("change", "level", "text", "where"), CASES)
def test_each_problem_has_a_headline_with_its_cause(
    change: Callable[[Status], None], level: str, text: str, where: str
) -> None:
    status = healthy()
    change(status)
    first, *_ = headlines(status)
    assert (first["level"], first["where"]) == (level, where)
    assert first["text"].startswith(text) if level == "good" else first["text"] == text


def test_the_headline_of_an_outage_has_its_duration() -> None:
    status = healthy() | {"events": [event("redis.lost", 12, refused=False)]}
    check("redis", "the master does not reach Redis")(status)
    assert headlines(status)[0]["text"].startswith("Redis has not responded for 12 s")


def test_the_headline_of_a_refusal_quotes_the_servers_error() -> None:
    lost = event(
        "redis.lost", 12, refused=True, error="MISCONF Errors writing to the AOF file: No space left on device"
    )
    status = healthy() | {"events": [lost]}
    check("redis", "the master does not reach Redis")(status)
    text = headlines(status)[0]["text"]
    assert text.startswith(
        "Redis has refused for 12 s: MISCONF Errors writing to the AOF file: No space left on device: no"
    )


def test_a_headline_quotes_only_the_first_sentence_of_a_refusal() -> None:
    advice = "Commands that may modify the data set are disabled. Please check the Redis logs for deta"
    lost = event("redis.lost", 12, refused=True, error=f"MISCONF it cannot save RDB snapshots. {advice}")
    status = healthy() | {"events": [lost]}
    check("redis", "the master does not reach Redis")(status)
    assert headlines(status)[0]["text"] == (
        "Redis has refused for 12 s: MISCONF it cannot save RDB snapshots: no task starts, but running tasks continue"
    )


def test_a_quiet_node_is_the_first_headline_and_the_stated_cause_of_lateness() -> None:
    status = healthy() | {"quiet_seconds": 90.0, "ready": QUIET, "queues": [LATE]}
    late = "queue mail is late: 1 m 34 s, but its objective is 5.0 s; this node is quiet"
    assert [row["text"] for row in headlines(status)] == [
        "this node has been quiet for 1 m 30 s: it starts no tasks",
        late,
    ]


def test_a_headline_reports_late_local_starts_even_without_redis() -> None:
    status = healthy() | {"queues": [LATE | {"state": None}], "queue_states_age_seconds": None}
    assert any(row["text"].startswith("queue mail is late: 1 m 34 s") for row in headlines(status))


def test_headlines_do_not_claim_that_queues_in_an_unknown_state_are_on_time() -> None:
    for changes in ({"queue_states_age_seconds": None}, {"queue_states_age_seconds": None, "redis_asked": False}):
        status = healthy() | {"queues": [queue() | {"state": None}]} | changes
        assert not any("no queue is late" in row["text"] for row in headlines(status))


def test_missing_status_values_cause_no_warning_headlines() -> None:
    """Values are null or missing if Redis is unreachable, the master does not reply, or the heartbeat comes from
    another version of Rota.
    """
    bare = healthy()
    for key in ("events", "nodes", "last_reload", "quiet_seconds"):
        bare[key] = None
    bare["queues"] = [queue() | {"state": None, "lag": None, "history": None}]
    assert [each["level"] for each in headlines(bare)] == ["good"]
    for key in ("events", "nodes", "last_reload", "quiet_seconds"):
        del bare[key]
    del bare["queues"][0]["history"], bare["processes"][2]["concurrency"]
    assert [each["level"] for each in headlines(bare)] == ["good"]


def test_the_headline_of_a_cause_comes_before_those_of_its_consequences() -> None:
    status = healthy() | {"held": [HELD], "queues": [LATE, queue("old", dead=3)]}
    assert [each["where"] for each in headlines(status)] == ["pools/default", "queues/mail", "queues/old"]
    assert [each["level"] for each in headlines(status)] == ["bad", "bad", "warn"]


def test_the_number_of_headlines_is_bounded() -> None:
    status = healthy() | {"queues": [queue(f"q{number}", dead=1) for number in range(200)]}
    assert len(headlines(status)) == MOST
