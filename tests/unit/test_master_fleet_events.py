"""Fleet events for operators: which log lines become events, the texts of the events, and when the snapshot with them
is published.
"""

from typing import Any

import pytest

from rota.protocol.views import ClosedQueue
from rota.telemetry import log_events
from rota_supervisor.config.model import Config
from rota_supervisor.control.port import RequestKind, ScaleOrder
from rota_supervisor.fleet_snapshot import Moment
from rota_supervisor.layout import Role
from rota_supervisor.master.core import effects as do
from rota_supervisor.master.core import fleet_status
from rota_supervisor.master.core.fleet_status import (
    MOST_CHARACTERS,
    MOST_PARTS,
    master_snapshot_of,
    report_of,
    status,
    url_of,
)
from rota_supervisor.master.core.master_events import ClosedSeen, ListeningAt, RedisFailed, RedisReplied, Ticked
from rota_supervisor.master.core.state import MOST_EVENTS
from rota_supervisor.master_snapshot import MasterSnapshot
from support.cores import Core

DEATH = {"child": "worker", "slot": 9, "pool": "mail", "words": "killed by SIGSEGV: native code failed", "stack": "x"}
TASK = {"task": "mail.send", "task_id": "id-1", "queue": "mail"}


@pytest.fixture
def core() -> Core:
    return Core(Config(imports=("code",), workers=2))


def noted(core: Core, *lines: do.Effect) -> list[str]:
    """Log these lines, and return the texts of all events for operators so far."""
    fleet_status.note_events(core.state, lines, core.now)
    return [each.text for each in core.state.events.last]


def published(core: Core) -> MasterSnapshot:
    return master_snapshot_of(core.state)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (
            do.warning(log_events.WORKER_EXITED, **DEATH, **TASK),
            "worker in slot 9 of pool mail, in task mail.send: killed by SIGSEGV: native code failed",
        ),
        (
            do.warning(log_events.POLLER_EXITED, child="poller", slot=4, reason="crash"),
            "poller in slot 4: crash",
        ),
        (
            do.error(log_events.POOL_FATAL, failures=10, words="exit code 1", child="worker", pool="mail"),
            "pool mail needs attention after 10 failed starts: exit code 1",
        ),
        (do.info(log_events.POOL_BACK, child="poller"), "the poller starts again"),
        (
            do.info(log_events.CONFIG_RELOADED, changes=["counts", "workers"], generation=3),
            "reloaded, generation 3: counts, workers",
        ),
        (do.info(log_events.CONFIG_RELOADED, changes=[], generation=3), "reloaded, generation 3: nothing changed"),
        (
            do.error(log_events.CONFIG_REJECTED, path="tiers[0]", error="expected a queue"),
            "reload refused: tiers[0]: expected a queue",
        ),
        (do.warning(log_events.CONFIG_WARNING, warning="nobody takes it"), "nobody takes it"),
        (
            do.error(log_events.TASK_DEAD, **TASK, reason="time_limit"),
            "task mail.send id-1 of queue mail is dead: time_limit",
        ),
    ],
)
def test_each_operator_event_has_its_text(core: Core, line: do.WriteLog, text: str) -> None:
    assert noted(core, line) == [text]


def test_orderly_exits_and_minor_log_lines_are_not_operator_events(core: Core) -> None:
    assert (
        noted(core, do.info(log_events.WORKER_EXITED, **DEATH), do.info(log_events.ZYGOTE_READY), do.PublishSnapshot())
        == []
    )


def test_the_last_operator_events_are_kept_and_numbered_without_gaps(core: Core) -> None:
    for _ in range(MOST_EVENTS + 20):
        noted(core, do.info(log_events.FLEET_QUIET))
    last = list(core.state.events.last)
    assert [each.n for each in last] == list(range(21, MOST_EVENTS + 21))


def test_an_operator_event_has_a_bounded_size_and_no_stack(core: Core) -> None:
    long: dict[str, Any] = {**DEATH, "words": "é" * 10_000}
    noted(core, do.warning(log_events.WORKER_EXITED, **long))
    noted(core, do.info(log_events.CONFIG_RELOADED, changes=["x" * 1000] * 1000, generation=1))
    died, reloaded = core.state.events.last
    assert len(died.text) == len(died.fields["words"]) == MOST_CHARACTERS
    assert "stack" not in died.fields
    assert [len(each) for each in reloaded.fields["changes"]] == [MOST_CHARACTERS] * MOST_PARTS


def test_operator_events_have_a_time_and_are_published_at_the_next_tick(core: Core) -> None:
    core.take(Ticked())
    core.take(RedisReplied())
    core.now = 7.0
    core.take(RedisFailed("network", "refused", is_away=True))
    core.request(RequestKind.SCALE, ScaleOrder(None, 4))
    assert not core.done(do.PublishSnapshot)[1:]
    core.take(Ticked())
    assert [(each.event, each.at, each.text) for each in published(core).events] == [
        (log_events.REDIS_LOST, 7.0, "Redis does not reply: refused"),
        (log_events.FLEET_SCALED, 7.0, "pool default: from 2 to 4 workers"),
    ]
    assert len(core.done(do.PublishSnapshot)) == 2
    core.take(Ticked())
    assert len(core.done(do.PublishSnapshot)) == 2


def test_the_control_socket_shows_events_in_wall_clock_time(core: Core) -> None:
    core.now = 90.0
    core.take(RedisReplied())
    core.take(RedisFailed("network", "refused", is_away=True))
    rows: Any = status(core.state, [], Moment(now=100.0, wall=5000.0))["events"]
    [row] = rows
    assert (row["n"], row["at"], row["level"], row["event"]) == (1, 4990.0, "error", log_events.REDIS_LOST)


def test_the_masters_snapshot_contains_its_children_and_closed_queues(core: Core) -> None:
    core.child(Role.WORKER, 8, "default", generation=3)
    core.child(Role.POLLER, 4, "pollers")
    core.now = 50.0
    core.take(ClosedSeen((ClosedQueue("bulk", 2_000_000, "", ""),)))
    core.request(RequestKind.QUIET)
    told = published(core)
    assert (told.node, told.quiet_since) == ("node", 50.0)
    assert tuple(each[:3] for each in told.children) == ((4, "", 1), (8, "default", 3))
    assert [(each.queue, each.since) for each in told.closed] == [("bulk", 48.0)]


def test_a_heartbeat_contains_a_report_about_the_node(core: Core) -> None:
    worker = core.child(Role.WORKER, 8, "default")
    worker.concurrency = 5
    worker.is_quiet = True
    core.state.last_death = {**DEATH, "at": 1.0}
    report = report_of(core.state)
    assert (report.state, report.workers, report.desired, report.concurrency, report.quiet) == ("starting", 1, 2, 5, 1)
    assert report.last_death == "worker in slot 9 of pool mail: killed by SIGSEGV: native code failed"
    assert (report.url, report.late) == (None, None)


@pytest.mark.parametrize(
    ("place", "url"),
    [
        ("", None),
        ("127.0.0.1:9477", None),
        ("[::1]:9477", None),
        ("10.0.0.7:9477", "http://10.0.0.7:9477/"),
        ("0.0.0.0:9477", "http://web-1:9477/"),
        ("[::]:9477", "http://web-1:9477/"),
        ("[2001:db8::7]:9477", "http://[2001:db8::7]:9477/"),
    ],
)
def test_the_status_page_has_a_url_only_if_other_machines_can_reach_it(place: str, url: str | None) -> None:
    assert url_of(place, "web-1") == url


def test_the_snapshot_has_the_url_of_the_bound_address(core: Core) -> None:
    core.take(ListeningAt("10.0.0.7:9477"))
    assert published(core).url == "http://10.0.0.7:9477/"
