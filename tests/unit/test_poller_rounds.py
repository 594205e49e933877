"""The poller's rounds of regular work, such as sweeps, reaps and audits. A failure in one round does not delay the
others, and the poller forgets nothing that a round has found.
"""

import json
import math
from collections.abc import Callable
from typing import Any, cast

import pytest

from rota.child.slot_memory import SharedText, SlotMemory
from rota.poller.fleet_scans import (
    AUDIT_SECONDS,
    KEYS_SECONDS,
    MOST_STRAYS,
    SCANS_A_BURST,
    SEARCH_AGAIN_SECONDS,
)
from rota.poller.poller_bell import BellState
from rota.poller.poller_loop import Rounds
from rota.poller.poller_report import PollerReport
from rota.poller.rounds import (
    NEW_SECONDS,
    QUIET_SECONDS,
    REARM_SECONDS,
    RESERVE_SECONDS,
    SETTLE_SECONDS,
    SWEEP_SECONDS,
    TRIM_SECONDS,
    UNKNOWN_DUE,
    NextDue,
)
from rota.protocol.replies import AdoptedScheduled, Bounded, Reaped, Swept
from rota.protocol.scripts import ScriptCall
from rota.protocol.store import Store
from rota.protocol.views import Bodies, Lists
from rota.server.connection import Connection
from rota.server.server_errors import ConnectionLost, Refused
from rota.telemetry import metrics
from rota.telemetry.metrics import GaugeDefinition
from rota.telemetry.recorder import Recorder
from support.child_settings import poller_settings

LEASE_SECONDS = 20.0
AUDIT = {"lists", "list_ids", "bodies", "unplaced"}
Answer = Callable[[list[str]], Any]


class FakeServer:
    """A fake connection. `calls` lists the commands that got a reply, except for the audit's commands, which are in
    `walked`. `fail` maps commands to errors that they raise once.
    """

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.walked: list[str] = []
        self.walks = True
        self.legacy_items = 0
        self.listed: list[str] = []
        self.searches: list[list[bytes]] = []
        self.scheduled: list[str] = []
        self.unplaced: list[bytes] = []
        self.expired: list[str] = []
        self.next_due_us: int | None = None
        self.absent: tuple[str, ...] = ()
        self.watched: tuple[str, ...] = ()
        self.rescues = 0
        self.lease_ends_us: int | None = None
        self.present = 0
        self.places_are_taken = False
        self.pulse = [b"0", b"0"]  # the time of the last sweep, and the number of free places of sweeping pollers
        self.reaped: list[str] = []
        self.adopted: list[str] = []
        self.scans: list[list[bytes]] = []
        self.trims = 1
        self.refused_owners: set[str] = set()
        self.fail: dict[str, Exception] = {}

    def run(self, call: ScriptCall[Any]) -> Any:
        args = [part.decode(errors="replace") for part in call.args.data.split(b"\r\n")[1::2]]
        self._note(call.script.name)
        return getattr(self, f"_{call.script.name}")(args)

    def _sweep(self, args: list[str]) -> Swept:
        name = args[1]
        if self.places_are_taken and name:
            return Swept(0, 0, 0, (), None, is_reserve=True)
        expired = tuple(owner for owner in self.expired if owner not in self.reaped)
        quiet = self.absent or self.watched, bool(self.absent), self.lease_ends_us
        return Swept(0, self.rescues, 0, expired, self.next_due_us, self.walks, self.legacy_items, None, (), *quiet)

    def _reap(self, args: list[str]) -> Reaped:
        if args[0] in self.refused_owners:
            raise Refused("WRONGTYPE", "wrongtype")
        self.reaped.append(args[0])
        return Reaped(False, 0, (), ())

    def _orphans(self, args: list[str]) -> int:
        self.adopted += args[1:]
        return len(args[1:])

    def _list_queues(self, args: list[str]) -> int:
        self.listed += args
        return len(args)

    def _adopt_scheduled(self, args: list[str]) -> AdoptedScheduled:
        self.scheduled += args
        return AdoptedScheduled(len(args), ())

    def _lists(self, _: list[str]) -> Lists:
        return Lists(0, ())

    def _bodies(self, _: list[str]) -> Bodies:
        return Bodies("0", self.unplaced)

    def _unplaced(self, _: list[str]) -> list[bytes]:
        return self.unplaced

    def _trim(self, _: list[str]) -> Bounded:
        self.trims -= 1
        return Bounded(500, self.trims > 0)

    def execute(self, word: str, *args: object) -> Any:
        self._note(word.lower())
        if word == "EXISTS":
            return self.present if args else 1
        if word == "HMGET":
            return list(self.pulse)
        portions = self.scans if word == "SCAN" else self.searches
        found = portions.pop(0) if portions else []
        return [b"7" if portions else b"0", found]

    def _note(self, word: str) -> None:
        if (error := self.fail.pop(word, None)) is not None:
            raise error
        (self.walked if word in AUDIT else self.calls).append(word)


class Clock:
    """A clock that a test sets."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Poller:
    """The rounds of one poller, with a fake server."""

    def __init__(self, lease_seconds: float = LEASE_SECONDS) -> None:
        self.clock = Clock()
        self.server = FakeServer()
        settings = poller_settings(lease_seconds=lease_seconds)
        self.store = Store("n")
        slot = SlotMemory.create(1).slot(0)
        self.recorder = Recorder(slot.metrics)
        self.listening = BellState()
        self.shared_text = SharedText(slot.spare)
        report = PollerReport(self.recorder, 4, self.shared_text)
        self.rounds = Rounds(settings, self.store, report, self.clock, self.listening)

    def step(self) -> NextDue | None:
        return self.rounds.step(cast(Connection, self.server))

    def until_idle(self) -> list[str]:
        """Take steps until nothing is due, and return the calls that these steps made."""
        before = len(self.server.calls)
        for _ in range(1000):
            if self.rounds.next_at > self.clock.now:
                return self.server.calls[before:]
            self.step()
        raise AssertionError("the loop never ends")

    def sweep_until_idle(self) -> list[str]:
        """Advance the clock to the next sweep, take steps until nothing is due, and return their calls."""
        self.clock.now += SWEEP_SECONDS
        return self.until_idle()

    def key_of(self, owner: str) -> bytes:
        return self.store.keys.inflight(owner).encode()

    def gauge(self, definition: GaugeDefinition) -> float:
        gauge = self.recorder.gauge(definition)
        return gauge._numbers[gauge._at]


@pytest.fixture
def poller() -> Poller:
    return Poller()


def test_each_step_of_a_poller_makes_one_call_to_redis(poller: Poller) -> None:
    poller.server.expired = ["n:1:1", "n:2:1", "n:3:1"]
    for calls in range(1, 5):
        poller.step()
        assert len(poller.server.calls) == calls
    assert poller.server.calls == ["sweep", "reap", "reap", "reap"]


def test_a_refused_reap_does_not_delay_the_reaping_of_other_owners(poller: Poller) -> None:
    poller.server.expired = ["n:1:1", "n:2:1", "n:3:1"]
    poller.server.refused_owners = {"n:1:1"}
    assert poller.until_idle() == ["sweep", "reap", "reap", "reap", "scan"]
    assert poller.server.reaped == ["n:2:1", "n:3:1"]
    poller.clock.now += SWEEP_SECONDS
    assert poller.until_idle() == ["sweep", "reap"]


def test_a_reap_interrupted_by_a_lost_connection_is_repeated_next(poller: Poller) -> None:
    poller.server.expired = ["n:1:1"]
    poller.step()
    poller.server.fail = {"reap": ConnectionLost("gone", "network")}
    with pytest.raises(ConnectionLost):
        poller.step()
    poller.step()
    assert poller.server.reaped == ["n:1:1"]


def test_only_a_sweep_reports_the_next_due_time(poller: Poller) -> None:
    poller.server.expired, poller.server.next_due_us = ["n:1:1"], 5_000_000
    assert [poller.step(), poller.step(), poller.step()] == [NextDue(5_000_000, 0, poller.clock.now), None, None]
    assert poller.server.calls == ["sweep", "reap", "scan"]


def sweeps(poller: Poller, times: int) -> list[str]:
    """Return the calls during this number of due sweeps."""
    calls = [call for _ in range(times) for call in poller.sweep_until_idle()]
    return [call for call in calls if call in ("sweep", "exists")]


def test_the_poller_of_an_idle_fleet_checks_keys_instead_of_most_sweeps(poller: Poller) -> None:
    poller.server.absent = "k", "l"
    poller.until_idle()
    assert sweeps(poller, 8) == ["exists", "exists", "exists", "sweep"] * 2
    assert 4 * SWEEP_SECONDS <= QUIET_SECONDS


def test_a_key_check_that_finds_a_key_causes_a_sweep_at_once(poller: Poller) -> None:
    poller.server.absent = "k", "l"
    poller.until_idle()
    poller.server.present = 1
    assert poller.sweep_until_idle() == ["exists", "sweep"]
    poller.server.absent = ()
    assert sweeps(poller, 2) == ["exists", "sweep", "sweep"]


def test_tracked_keys_are_not_tracked_again_until_one_changes(poller: Poller) -> None:
    poller.listening.client_id = 7
    poller.server.absent = "k", "l"
    poller.until_idle()
    assert poller.sweep_until_idle() == ["client", "client", "exists"]
    assert poller.sweep_until_idle() == ["exists"]
    poller.listening.changed_at = poller.clock.now
    poller.clock.now += SETTLE_SECONDS
    assert poller.until_idle() == ["sweep"]
    assert poller.sweep_until_idle() == ["client", "exists"]


def sweep_after_a_change(poller: Poller, rescues: int) -> float:
    """Report to the poller that a tracked key has changed. In the sweep that follows, let this number of queues have
    entries but no token. Return the number of seconds from this sweep to the poller's next planned call.
    """
    poller.listening.changed_at, poller.server.rescues = poller.clock.now, rescues
    poller.clock.now += SETTLE_SECONDS
    assert poller.until_idle() == ["sweep"]
    seconds = poller.rounds.next_at - poller.clock.now
    poller.clock.now = poller.rounds.next_at
    poller.until_idle()
    return seconds


def test_a_poller_tracks_keys_again_sooner_if_tasks_lacked_a_token(poller: Poller) -> None:
    poller.listening.client_id = 7
    poller.server.absent = "k", "l"
    poller.until_idle()
    poller.sweep_until_idle()
    seconds = [sweep_after_a_change(poller, rescues) for rescues in (0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0)]
    rearm = REARM_SECONDS
    doubled = [rearm, rearm * 2, rearm * 4, rearm, rearm, rearm * 2, rearm * 4, rearm * 8, rearm * 16]
    assert seconds == pytest.approx([*doubled, SWEEP_SECONDS, SWEEP_SECONDS])
    poller.sweep_until_idle()
    assert sweep_after_a_change(poller, 0) == pytest.approx(rearm)


def test_existing_keys_are_tracked_before_the_first_sweep_reads_them(poller: Poller) -> None:
    poller.listening.client_id = 7
    poller.server.watched = "k", "l"
    poller.until_idle()
    assert poller.sweep_until_idle() == ["client", "client", "exists", "sweep"]
    assert poller.sweep_until_idle() == ["sweep"]


def test_new_keys_are_tracked_at_the_next_key_check(poller: Poller) -> None:
    poller.listening.client_id = 7
    poller.server.absent = "k", "l"
    poller.until_idle()
    sweeps(poller, 4)
    poller.server.absent = "k", "l", "m"
    assert sweeps(poller, 5)[-2:] == ["sweep", "exists"]
    assert poller.server.calls.count("client") == 3, "tracking once, and caching for each set"


def test_a_poller_does_not_retry_key_tracking_that_the_server_refused(poller: Poller) -> None:
    poller.listening.client_id = 7
    poller.server.absent = "k", "l"
    poller.until_idle()
    poller.server.fail = {"client": Refused("NOPERM", "noperm")}
    assert sweeps(poller, 4) == ["exists", "exists", "exists", "sweep"]
    assert "client" not in poller.server.calls
    poller.listening.changed_at = poller.clock.now
    assert poller.rounds.next_at > poller.clock.now


def test_a_key_check_that_finds_no_key_reports_that_no_task_is_due(poller: Poller) -> None:
    poller.server.absent = "k", "l"
    poller.until_idle()
    poller.clock.now += SWEEP_SECONDS
    assert poller.step() == NextDue(None, 0, poller.clock.now)


def test_if_redis_refuses_a_key_check_the_poller_sweeps_instead(poller: Poller) -> None:
    poller.server.absent = "k", "l"
    poller.until_idle()
    poller.server.fail = {"exists": Refused("NOPERM", "noperm")}
    assert poller.sweep_until_idle() == ["sweep"]


def reserve_after_its_first_check(poller: Poller) -> None:
    """Make this poller a reserve, and let it check once while others sweep."""
    poller.server.places_are_taken = True
    poller.clock.now += NEW_SECONDS
    assert poller.until_idle() == ["sweep"]
    poller.clock.now += RESERVE_SECONDS
    assert poller.until_idle() == ["hmget"]


def test_a_new_poller_sweeps_although_all_places_are_taken(poller: Poller) -> None:
    poller.server.places_are_taken = True
    for _ in range(5):
        assert poller.sweep_until_idle()[:2] == ["sweep", "sweep"]  # with its name, and then without
        assert not poller.listening.is_reserve
    poller.clock.now += NEW_SECONDS
    poller.sweep_until_idle()
    assert poller.listening.is_reserve


def test_a_reserve_makes_only_a_check_every_four_seconds(poller: Poller) -> None:
    reserve_after_its_first_check(poller)
    for sweeps_of_others in range(1, 20):
        poller.server.pulse = [b"%d" % sweeps_of_others, b"0"]
        assert poller.rounds.next_at == poller.clock.now + RESERVE_SECONDS
        poller.clock.now += RESERVE_SECONDS
        assert poller.until_idle() == ["hmget"]
    assert poller.listening.is_reserve


def test_a_reserve_has_nothing_to_promote_before_its_next_check(poller: Poller) -> None:
    poller.server.places_are_taken = True
    poller.clock.now += NEW_SECONDS
    next_due = poller.step()
    assert next_due is not None
    assert next_due.due_at == math.inf
    assert next_due.stale_at > poller.clock.now + RESERVE_SECONDS


def test_a_reserve_takes_a_free_place_and_all_duties_at_once(poller: Poller) -> None:
    reserve_after_its_first_check(poller)
    poller.server.pulse = [b"1", b"1"]
    poller.server.places_are_taken = False
    poller.clock.now += RESERVE_SECONDS
    assert poller.step() == UNKNOWN_DUE
    assert not poller.listening.is_reserve
    assert poller.until_idle() == ["sweep", "scan"]


@pytest.mark.parametrize("pulse", [[b"0", b"0"], [None, None]], ids=["unchanged", "lost"])
def test_a_reserve_sweeps_if_no_poller_has_swept_since_its_last_check(poller: Poller, pulse: list[Any]) -> None:
    reserve_after_its_first_check(poller)
    poller.server.pulse = pulse
    poller.server.places_are_taken = False
    poller.clock.now += RESERVE_SECONDS
    assert poller.until_idle()[:2] == ["hmget", "sweep"]


def test_a_reserve_whose_check_is_refused_sweeps(poller: Poller) -> None:
    reserve_after_its_first_check(poller)
    poller.server.fail = {"hmget": Refused("NOPERM", "noperm")}
    poller.server.places_are_taken = False
    poller.clock.now += RESERVE_SECONDS
    assert poller.until_idle()[0] == "sweep"


def test_an_expired_lease_is_found_by_a_sweep_within_a_second(poller: Poller) -> None:
    poller.server.absent, poller.server.lease_ends_us = ("k", "l"), 2_000_000
    poller.until_idle()
    assert sweeps(poller, 2) == ["exists", "sweep"]


def test_with_a_short_lease_the_poller_sweeps_every_time() -> None:
    poller = Poller(lease_seconds=4.0)
    poller.server.absent = "k", "l"
    assert poller.until_idle()[:1] == ["sweep"]
    assert sweeps(poller, 4) == ["sweep"] * 4


def test_reaps_do_not_delay_the_next_sweep(poller: Poller) -> None:
    poller.server.expired = [f"n:{slot}:1" for slot in range(100)]
    poller.step()
    poller.step()
    poller.clock.now += SWEEP_SECONDS
    poller.step()
    assert poller.server.calls == ["sweep", "reap", "sweep"]


@pytest.mark.parametrize("call", ["sweep", "scan", "orphans", "trim"])
def test_a_refused_poller_call_does_not_prevent_the_others(poller: Poller, call: str) -> None:
    poller.clock.now += TRIM_SECONDS
    poller.server.scans = [[poller.key_of("n:1:1")]]
    poller.server.fail = {call: Refused("NOPERM", "noperm")}
    made = ["sweep", "scan", "orphans", "trim"]
    made.remove(call)
    if call == "scan":
        made.remove("orphans")
    if call == "sweep":  # the reply to the sweep names the poller that scans
        made = ["trim"]
    assert poller.until_idle() == made


def test_a_scanned_key_that_is_not_utf8_is_skipped(poller: Poller) -> None:
    poller.server.scans = [[poller.key_of("") + b"\xff\xfe", poller.key_of("n:1:1")]]
    poller.until_idle()
    assert "n:1:1" in poller.server.adopted


@pytest.mark.parametrize("call", ["orphans", "scan"])
def test_orphaned_owners_found_by_a_scan_are_kept_if_the_connection_is_lost(poller: Poller, call: str) -> None:
    poller.server.scans = [[poller.key_of("n:1:1")], [poller.key_of("n:2:1")]]
    poller.step()
    poller.step()
    poller.server.fail = {call: ConnectionLost("gone", "network")}
    with pytest.raises(ConnectionLost):
        poller.until_idle()
    poller.until_idle()
    assert poller.server.adopted == ["n:1:1", "n:2:1"]


def test_a_poller_adopts_orphaned_owners_in_calls_of_a_hundred(poller: Poller) -> None:
    owners = [f"n:{slot}:1" for slot in range(250)]
    poller.server.scans = [[poller.key_of(owner) for owner in owners]]
    assert poller.until_idle() == ["sweep", "scan", "orphans", "orphans", "orphans"]
    assert poller.server.adopted == owners


def test_a_key_scan_pauses_after_20_calls_and_restarts_after_each_lease_time(poller: Poller) -> None:
    poller.server.scans = [[]] * (SCANS_A_BURST + 2)
    assert poller.until_idle() == ["sweep", *["scan"] * SCANS_A_BURST]
    poller.clock.now += SWEEP_SECONDS
    assert poller.until_idle() == ["sweep", "scan", "scan"]
    poller.clock.now += SWEEP_SECONDS
    assert poller.until_idle() == ["sweep"]
    poller.clock.now += LEASE_SECONDS
    assert poller.until_idle() == ["sweep", "scan"]


def test_expired_records_are_trimmed_in_at_most_20_calls_at_once(poller: Poller) -> None:
    poller.until_idle()
    poller.clock.now += TRIM_SECONDS
    poller.server.trims = 3
    assert poller.until_idle() == ["sweep", "scan", "trim", "trim", "trim"]
    poller.clock.now += TRIM_SECONDS
    poller.server.trims = 1000
    assert poller.until_idle() == ["sweep", "scan", *["trim"] * 20]


# Work that one poller does for the whole fleet


def test_only_the_leading_poller_scans_keys(poller: Poller) -> None:
    poller.server.walks, poller.server.legacy_items = False, 3
    assert poller.until_idle() == ["sweep"]
    poller.clock.now += TRIM_SECONDS
    assert poller.until_idle() == ["sweep", "trim"]
    assert poller.server.walked == []


def test_an_unlisted_queue_found_by_its_lanes_is_listed_once(poller: Poller) -> None:
    keys = poller.store.keys
    poller.server.scans = [
        [keys.ready_lane("emial").encode(), keys.delayed_lane("emial").encode(), keys.queues.encode()]
    ]
    assert poller.until_idle() == ["sweep", "scan", "list_queues"]
    assert poller.server.listed == ["emial"]


@pytest.mark.parametrize("letter", ["x", "\u00e9", "\U0001f600", "\x1b"])
def test_long_keys_that_look_like_queues_do_not_stop_the_poller(poller: Poller, letter: str) -> None:
    long = letter * 1_000_000
    poller.server.scans = [[f"n:queue:{number}{long}".encode() for number in range(9)]]
    poller.until_idle()
    rows = json.loads(poller.shared_text.read())
    assert [row["key"][:9] for row in rows] == [f"n:queue:{number}" for number in range(MOST_STRAYS)]


def test_lists_mistaken_for_queues_are_reported_until_they_are_gone(poller: Poller) -> None:
    assert poller.shared_text.read() == b"[]"
    poller.server.scans = [[b"n:queue:mail", b"{n}:queue:no space", b"{n}:queue:mail", b"other:queue:n"]]
    poller.until_idle()
    faults = {row["key"]: row["fault"] for row in json.loads(poller.shared_text.read())}
    assert faults.keys() == {"n:queue:mail", "{n}:queue:no space"}
    assert faults["n:queue:mail"] == "the key of queue mail is {n}:queue:mail"
    assert "is not valid" in faults["{n}:queue:no space"]
    poller.clock.now += LEASE_SECONDS
    poller.until_idle()
    assert poller.shared_text.read() == b"[]"


def test_lanes_of_unlisted_queues_are_searched_at_least_once_a_minute(poller: Poller) -> None:
    poller.until_idle()
    poller.clock.now += KEYS_SECONDS
    assert "scan" in poller.until_idle()


def test_scheduled_items_that_a_sweep_reports_are_adopted_at_once(poller: Poller) -> None:
    poller.until_idle()
    poller.server.legacy_items, poller.server.searches = 2, [[b"[1]", b"5"], [b"[2]", b"6"]]
    assert poller.sweep_until_idle() == ["sweep", "zscan", "adopt_scheduled", "zscan", "adopt_scheduled"]
    assert poller.server.scheduled == ["[1]", "[2]"]
    poller.server.legacy_items = 0
    assert poller.sweep_until_idle() == ["sweep"]


def test_items_that_a_search_did_not_find_are_not_searched_for_every_second(poller: Poller) -> None:
    """A search can miss an item, for example because another program has deleted the item's ticket, which is the text
    that Redis stores for a delayed task.
    """
    poller.until_idle()
    poller.server.legacy_items = 1
    assert poller.sweep_until_idle() == ["sweep", "zscan"]
    assert poller.sweep_until_idle() == ["sweep"]
    poller.server.legacy_items = 2
    assert poller.sweep_until_idle() == ["sweep", "zscan"]
    poller.clock.now += SEARCH_AGAIN_SECONDS
    assert "zscan" in poller.until_idle()


def test_the_audit_takes_turns_with_other_calls_and_reports_unplaced_tasks(
    poller: Poller,
) -> None:
    poller.server.unplaced = [b"a"]
    while len(poller.server.walked) < 5:
        before = len(poller.server.walked)
        poller.clock.now = max(poller.clock.now, poller.rounds.next_at)
        poller.until_idle()
        assert len(poller.server.walked) <= before + 1
    assert poller.server.walked == ["lists", "bodies", "unplaced", "lists", "unplaced"]
    assert poller.gauge(metrics.AUDIT_UNPLACED) == 1
    poller.server.walks = False
    poller.sweep_until_idle()
    assert math.isnan(poller.gauge(metrics.AUDIT_UNPLACED))
    poller.clock.now += AUDIT_SECONDS
    poller.until_idle()
    assert len(poller.server.walked) == 5


def test_a_refused_audit_is_repeated_at_its_next_regular_time(poller: Poller) -> None:
    poller.server.fail = {"lists": Refused("NOPERM", "noperm")}
    poller.until_idle()
    assert poller.sweep_until_idle() == ["sweep"]
    assert poller.server.walked == []
    poller.clock.now += AUDIT_SECONDS
    poller.until_idle()
    assert poller.server.walked == ["lists"]
