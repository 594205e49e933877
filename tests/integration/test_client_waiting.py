"""Real clients that wait for tasks. The protocol driver ends each task with a single call."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from rota.client import waits
from rota.client.blocking.client import Client
from rota.client.inquiries import ResultNotStored, TaskCancelled, TaskDead, TaskExpired
from rota.errors import Unavailable, WaitTimeout
from rota.protocol.entry import CrashKind
from rota.protocol.outcome import DONE, CancelledOutcome, DeadOutcome, Done, Expired, Outcome, Release, RetryOutcome
from rota.protocol.store import Blame
from rota.protocol.task_states import State
from rota.protocol.turns import Claim
from support.protocol import Fleet, one_tier
from support.servers import Server
from support.waiting import until

SECONDS = 30
MANY = 500
SERVING = one_tier("q")
RESULT = Done(b'{"sum":7}', 60_000)

InThread = Callable[..., "Future[Any]"]


@pytest.fixture(autouse=True)
def _wakes_only(monkeypatch: pytest.MonkeyPatch) -> None:
    # Without this change, the regular query would return the end even to a caller that was never woken.
    monkeypatch.setattr(waits, "QUERY_ALL_SECONDS", 1000.0)


@pytest.fixture(name="in_thread")
def _in_thread(client: Client) -> Iterator[InThread]:
    """Yield a function that runs another function in a separate thread. At the end, the client is closed first, so that
    no thread still waits.
    """
    with ThreadPoolExecutor(MANY) as pool:
        yield pool.submit
        client.close()


def until_registered(fleet: Fleet, count: int = 1) -> None:
    """Wait until this many waits are registered on the server."""
    until(lambda: fleet.redis.hlen(fleet.keys.waiters) == count, f"{count} tasks that somebody waits for")


def waiting_threads() -> int:
    return sum(thread.name == "rota-waiting" for thread in threading.enumerate())


def blocked_connections(fleet: Fleet) -> int:
    """Return how many connections to this server are blocked in a command."""
    return sum(line["cmd"] == "blpop" for line in fleet.redis.client_list())


class TestEnds:
    """Tests that every kind of end wakes the callers that wait for the task."""

    @pytest.mark.parametrize(
        ("outcome", "state"),
        [
            (DONE, State.DONE),
            (DeadOutcome(b'{"why":"no such address"}'), State.DEAD),
            (CancelledOutcome(), State.CANCELLED),
            (Expired(), State.EXPIRED),
        ],
        ids=lambda value: str(value) if isinstance(value, State) else "",
    )
    def test_a_wait_ends_with_every_final_outcome(
        self, client: Client, fleet: Fleet, in_thread: InThread, outcome: Outcome, state: State
    ) -> None:
        owner, claim = fleet.claimed("a")
        asked = in_thread(client.wait, "a", SECONDS)
        until_registered(fleet)
        fleet.turn(owner, SERVING, (claim, outcome), limit=0)
        assert asked.result(SECONDS).state is state
        assert fleet.redis.hlen(fleet.keys.waiters) == 0

    @pytest.mark.parametrize("delay", ["", "+600000000"], ids=["ready", "scheduled"])
    def test_a_cancellation_of_a_waiting_task_ends_the_wait(
        self, client: Client, fleet: Fleet, in_thread: InThread, delay: str
    ) -> None:
        fleet.push("a", due=delay)
        asked = in_thread(client.wait, "a", SECONDS)
        until_registered(fleet)
        client.cancel("a")
        assert asked.result(SECONDS).state is State.CANCELLED

    def test_a_cancelled_running_task_ends_the_wait_at_its_end(
        self, client: Client, fleet: Fleet, in_thread: InThread
    ) -> None:
        owner, claim = fleet.claimed("a")
        asked = in_thread(client.wait, "a", SECONDS)
        until_registered(fleet)
        client.cancel("a")
        assert not asked.done()
        fleet.turn(owner, SERVING, (claim, RetryOutcome(0)), limit=0)
        assert asked.result(SECONDS).state is State.CANCELLED

    def test_a_wait_ends_when_the_task_is_purged(self, client: Client, fleet: Fleet, in_thread: InThread) -> None:
        fleet.push("a")
        asked = in_thread(client.result, "a", SECONDS)
        until_registered(fleet)
        fleet.run(fleet.store.purge("q"))
        with pytest.raises(TaskCancelled):
            asked.result(2 * SECONDS)  # longer than the wait itself, so that a failing test shows the error of the wait

    def test_a_wait_ends_when_a_crash_makes_the_task_dead(
        self, client: Client, fleet: Fleet, in_thread: InThread
    ) -> None:
        owner, _ = fleet.claimed("a")
        asked = in_thread(client.wait, "a", SECONDS)
        until_registered(fleet)
        fleet.exit(owner, ["a"], blame=Blame((("a", b"{}"),), crash_limit=1, crash=CrashKind.CRASH))
        assert asked.result(SECONDS).state is State.DEAD

    def test_a_wait_ends_when_a_lost_node_makes_the_task_dead(
        self, client: Client, fleet: Fleet, in_thread: InThread
    ) -> None:
        owner, _ = fleet.claimed("a")
        asked = in_thread(client.wait, "a", SECONDS)
        until_registered(fleet)
        fleet.expire_lease(owner)
        fleet.run(fleet.store.reap_expired(owner, Blame(loss_limit=1)))
        assert asked.result(SECONDS).state is State.DEAD

    def test_a_released_attempt_does_not_end_the_wait(self, client: Client, fleet: Fleet, in_thread: InThread) -> None:
        owner, claim = fleet.claimed("a")
        asked = in_thread(client.wait, "a", SECONDS)
        until_registered(fleet)
        fleet.turn(owner, SERVING, (claim, Release()), limit=0)
        [claim] = fleet.turn(owner, SERVING).claims
        assert not asked.done()
        fleet.turn(owner, SERVING, (claim, DONE), limit=0)
        assert asked.result(SECONDS).state is State.DONE

    def test_a_wait_ends_with_the_task_even_if_the_end_is_not_stored(
        self, client: Client, fleet: Fleet, in_thread: InThread
    ) -> None:
        owner, claim = fleet.claimed("a")
        asked = in_thread(client.wait, "a", SECONDS)
        until_registered(fleet)
        fleet.turn(owner, SERVING, (claim, DONE), limit=0, run=b"")
        assert asked.result(SECONDS).state is State.DONE
        assert client.wait("a", SECONDS).state is State.UNKNOWN

    def test_a_wait_for_an_ended_task_returns_at_once(self, client: Client, fleet: Fleet) -> None:
        owner, claim = fleet.claimed("a")
        fleet.turn(owner, SERVING, (claim, RESULT), limit=0)
        assert client.wait("a", SECONDS).state is State.DONE
        assert client.wait_started("a", SECONDS).state is State.DONE
        assert client.result("a", SECONDS) == {"sum": 7}
        assert client.wait("nobody", SECONDS).state is State.UNKNOWN
        assert fleet.redis.hlen(fleet.keys.waiters) == 0


class TestStarts:
    def test_a_wait_for_the_start_ends_when_the_task_is_claimed(
        self, client: Client, fleet: Fleet, in_thread: InThread
    ) -> None:
        fleet.push("a")
        started, ended = in_thread(client.wait_started, "a", SECONDS), in_thread(client.wait, "a", SECONDS)
        until(lambda: len(str(fleet.redis.hget(fleet.keys.waiters, "a")).split()) == 2, "two waits")
        owner = fleet.register()
        [claim] = fleet.turn(owner, SERVING).claims
        status = started.result(SECONDS)
        assert (status.state, status.owner) == (State.RUNNING, owner)
        assert client.wait_started("a", SECONDS).state is State.RUNNING
        assert not ended.done()
        fleet.turn(owner, SERVING, (claim, DONE), limit=0)
        assert ended.result(SECONDS).state is State.DONE

    def test_a_wait_for_the_start_ends_if_the_task_is_cancelled_first(
        self, client: Client, fleet: Fleet, in_thread: InThread
    ) -> None:
        fleet.push("a")
        asked = in_thread(client.wait_started, "a", SECONDS)
        until_registered(fleet)
        client.cancel("a")
        assert asked.result(SECONDS).state is State.CANCELLED


class TestResults:
    def ended(self, fleet: Fleet, outcome: Outcome) -> None:
        owner, claim = fleet.claimed("a")
        fleet.turn(owner, SERVING, (claim, outcome), limit=0)

    def test_the_result_of_a_task_may_be_none(self, client: Client, fleet: Fleet) -> None:
        self.ended(fleet, Done(b"null", 60_000))
        assert client.result("a", SECONDS) is None

    def test_waiting_for_the_result_of_a_dead_task_raises_why_it_died(self, client: Client, fleet: Fleet) -> None:
        self.ended(fleet, DeadOutcome(b'{"reason":"failed","error":"no such address"}'))
        with pytest.raises(TaskDead, match="task a is dead: no such address") as raised:
            client.result("a", SECONDS)
        assert (raised.value.id, raised.value.death["reason"]) == ("a", "failed")

    def test_cancelled_and_expired_tasks_raise_their_own_errors(self, client: Client, fleet: Fleet) -> None:
        self.ended(fleet, CancelledOutcome())
        with pytest.raises(TaskCancelled):
            client.result("a", SECONDS)
        self.ended(fleet, Expired())
        with pytest.raises(TaskExpired):
            client.result("a", SECONDS)

    def test_a_missing_result_raises_with_the_reason(self, client: Client, fleet: Fleet) -> None:
        self.ended(fleet, DONE)
        with pytest.raises(ResultNotStored, match="the task does not store its result"):
            client.result("a", SECONDS)
        with pytest.raises(ResultNotStored, match="the server knows nothing"):
            client.result("nobody", SECONDS)

    def test_large_results_are_fetched_in_several_calls(
        self, client: Client, fleet: Fleet, in_thread: InThread
    ) -> None:
        # Each of these results is so large that one reply has room for only one of them.
        names = [f"large{n}" for n in range(5)]
        fleet.push(*names)
        asked = [in_thread(client.result, name, SECONDS) for name in names]
        until_registered(fleet, len(names))
        owner = fleet.register()
        claims = fleet.turn(owner, SERVING, limit=len(names)).claims
        text = "x" * 1_100_000
        fleet.turn(owner, SERVING, *((claim, Done(f'"{text}"'.encode(), 60_000)) for claim in claims), limit=0)
        assert all(future.result(SECONDS) == text for future in asked)


class TestManyThreads:
    def test_500_threads_wait_for_their_results_on_one_connection(
        self, client: Client, fleet: Fleet, in_thread: InThread
    ) -> None:
        names = [f"t{n}" for n in range(MANY)]
        fleet.push(*names)
        before = len(fleet.redis.client_list())
        asked = [in_thread(client.result, name, SECONDS) for name in names]
        until_registered(fleet, MANY)
        until(lambda: blocked_connections(fleet) == 1, "a client that blocks")
        # One connection waits, and the other one reads this list of clients.
        assert len(fleet.redis.client_list()) <= before + 2
        assert waiting_threads() == 1
        owner = fleet.register()
        for start in range(0, MANY, 100):
            claims = fleet.turn(owner, SERVING, limit=100).claims
            fleet.turn(owner, SERVING, *((claim, self.done(claim)) for claim in claims), limit=0)
            assert [future.result(SECONDS) for future in asked[start : start + 100]] == names[start : start + 100]
        assert fleet.redis.hlen(fleet.keys.waiters) == 0

    def test_many_threads_can_wait_for_the_same_task(self, client: Client, fleet: Fleet, in_thread: InThread) -> None:
        owner, claim = fleet.claimed("a")
        asked = [in_thread(client.result, "a", SECONDS) for _ in range(50)]
        until_registered(fleet)
        fleet.turn(owner, SERVING, (claim, RESULT), limit=0)
        assert all(future.result(SECONDS) == {"sum": 7} for future in asked)

    def done(self, claim: Claim) -> Done:
        return Done(f'"{claim.entry.id}"'.encode(), 60_000)


class TestTimeouts:
    def test_an_ended_wait_leaves_no_thread_and_no_connection(
        self, client: Client, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(waits, "QUERY_ALL_SECONDS", 0.1)
        monkeypatch.setattr(waits, "LINGER_SECONDS", 0.1)
        fleet.push("a")
        with pytest.raises(TimeoutError, match=r"task a has not ended within 0.05 s$"):
            client.result("a", 0.05)
        until(lambda: waiting_threads() == 0, "the end of the thread")
        until(lambda: not blocked_connections(fleet), "the end of its connection")

    def test_a_wait_starts_a_new_thread_if_the_waiting_thread_has_ended(
        self, client: Client, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(waits, "LINGER_SECONDS", 0.01)
        owner, claim = fleet.claimed("a")
        fleet.turn(owner, SERVING, (claim, RESULT), limit=0)
        for _ in range(3):
            assert client.result("a", SECONDS) == {"sum": 7}
            until(lambda: waiting_threads() == 0, "the end of the thread")

    def test_a_wait_timeout_says_if_the_server_could_not_be_reached(self, tmp_path: Path, server: Server) -> None:
        own = Server(server.binary, tmp_path).start()
        with Client(own.url) as client:
            own.stop()
            with pytest.raises(WaitTimeout, match="the server could not be reached: Redis at redis://127"):
                client.wait("a", 0.5)

    def test_closing_the_client_ends_its_waits(self, client: Client, fleet: Fleet, in_thread: InThread) -> None:
        fleet.push("a")
        asked = in_thread(client.wait, "a")
        until_registered(fleet)
        client.close()
        with pytest.raises(Unavailable, match="closed during the wait"):
            asked.result(SECONDS)
        until(lambda: waiting_threads() == 0, "the end of the thread")

    @pytest.mark.parametrize("forbidden", ["-evalsha", "-hget", "-blpop", "password"])
    def test_a_wait_without_the_needed_permissions_raises_at_once(
        self, server: Server, namespace: str, fleet: Fleet, forbidden: str
    ) -> None:
        fleet.push("a")
        may: dict[str, Any] = {
            "commands": ["+@all", *([forbidden] if forbidden != "password" else [])],
            "enabled": True,
            "keys": ["*"],
        }
        fleet.redis.acl_setuser("half", **may, passwords=["+pw"], reset=True)
        password = "pw" if forbidden != "password" else "wrong"
        with Client(server.url.replace("redis://", f"redis://half:{password}@"), namespace) as client:
            for _ in range(2):
                with pytest.raises(Unavailable, match=r"(?i)permission|password|can.t run"):
                    client.wait("a", SECONDS)
        fleet.redis.acl_deluser("half")


class TestInterruptions:
    def test_ctrl_c_ends_a_wait_at_once(self, server: Server, namespace: str, fleet: Fleet) -> None:
        fleet.push("a")
        code = f"import rota; rota.Client({server.url!r}, {namespace!r}).wait('a')"
        with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True) as waiting:
            try:
                until_registered(fleet)
                waiting.send_signal(signal.SIGINT)
                _, printed = waiting.communicate(timeout=SECONDS)
            finally:
                waiting.kill()
        assert waiting.returncode == -signal.SIGINT
        assert printed.strip().endswith("KeyboardInterrupt")

    def test_overwritten_keys_do_not_end_a_wait_early(self, client: Client, fleet: Fleet, in_thread: InThread) -> None:
        owner, claim = fleet.claimed("a", "b")
        asked = in_thread(client.wait, "a", SECONDS)
        until_registered(fleet)
        [replies] = [word.partition(":")[2] for word in str(fleet.redis.hget(fleet.keys.waiters, "a")).split()]
        fleet.redis.rpush(fleet.keys.replies(replies), "done a", "", "done", "done x", b"\xff \xff")
        fleet.redis.hset(fleet.keys.waiters, "b", "e: s:\xff nonsense e:!")
        until(lambda: fleet.redis.llen(fleet.keys.replies(replies)) == 0, "the message was read")
        assert not asked.done()
        fleet.redis.append(fleet.keys.ends, "\n!1 odd 1 -\nc odd words\n 0 0 0 -")
        fleet.redis.rpush(fleet.keys.result("d"), "another type")
        assert {client.wait(name, SECONDS).state for name in ("c", "d")} == {State.UNKNOWN}
        fleet.redis.delete(fleet.keys.waiters)
        fleet.redis.set(fleet.keys.waiters, "another type")
        fleet.turn(owner, SERVING, (claim, DONE), limit=0)  # the invalid data does not prevent a turn
        assert client.status("a").state is State.DONE
        with pytest.raises(WaitTimeout, match="WRONGTYPE"):
            client.wait("b", 0.3)
        fleet.redis.delete(fleet.keys.waiters)
        assert asked.result(SECONDS).state is State.DONE


class TestLosses:
    def test_a_wait_queries_again_in_case_it_missed_a_wake_up(
        self, client: Client, fleet: Fleet, in_thread: InThread, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(waits, "QUERY_ALL_SECONDS", 0.2)
        owner, claim = fleet.claimed("a")
        asked = in_thread(client.wait, "a", SECONDS)
        until_registered(fleet)
        with fleet.redis.pipeline() as together:
            together.delete(fleet.keys.waiters)
            together.set(fleet.keys.waiters, "another type")
            together.execute()
        fleet.turn(owner, SERVING, (claim, DONE), limit=0)
        fleet.redis.delete(fleet.keys.waiters)
        assert asked.result(SECONDS).state is State.DONE

    def test_after_a_lost_connection_waits_are_registered_again(
        self, client: Client, fleet: Fleet, in_thread: InThread
    ) -> None:
        owner, claim = fleet.claimed("a")
        asked = in_thread(client.wait, "a", SECONDS)
        until_registered(fleet)
        until(lambda: blocked_connections(fleet), "a client that blocks")
        fleet.redis.delete(fleet.keys.waiters)
        for line in fleet.redis.client_list():
            if line["cmd"] == "blpop":
                fleet.redis.client_kill_filter(_id=line["id"])
        until_registered(fleet)
        fleet.turn(owner, SERVING, (claim, DONE), limit=0)
        assert asked.result(SECONDS).state is State.DONE

    def test_100_waits_survive_a_restart_of_the_server(self, tmp_path: Path, server: Server, namespace: str) -> None:
        own = Server(server.binary, tmp_path, appendonly="yes", appendfsync="always").start()
        fleet = Fleet(own, namespace)
        names = [f"t{n}" for n in range(100)]
        with Client(own.url, namespace) as client, ThreadPoolExecutor(100) as pool:
            fleet.push(*names)
            asked = [pool.submit(client.wait, name, SECONDS) for name in names]
            until_registered(fleet, 100)
            fleet.close()
            own.kill()
            own.start()
            fleet = Fleet(own, namespace)
            owner = fleet.register()
            claims = fleet.turn(owner, SERVING, limit=100).claims
            fleet.turn(owner, SERVING, *((claim, DONE) for claim in claims), limit=0)
            assert {future.result(SECONDS).state for future in asked} == {State.DONE}
        fleet.close()
        own.stop()

    def test_a_forked_child_waits_over_its_own_connection(
        self, client: Client, fleet: Fleet, in_thread: InThread
    ) -> None:
        owner, claim = fleet.claimed("a")
        asked = in_thread(client.wait, "a", SECONDS)
        until_registered(fleet)
        child = os.fork()
        if child == 0:
            os._exit(7 if client.wait("a", SECONDS).state is State.DONE else 1)
        until(lambda: len(str(fleet.redis.hget(fleet.keys.waiters, "a")).split()) == 2, "the child's wait")
        fleet.turn(owner, SERVING, (claim, DONE), limit=0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert asked.result(SECONDS).state is State.DONE

    def test_keys_of_a_killed_client_expire(self, server: Server, namespace: str, fleet: Fleet) -> None:
        owner, claim = fleet.claimed("a")
        child = os.fork()
        if child == 0:
            Client(server.url, namespace).wait("a")
        until_registered(fleet)
        os.kill(child, 9)
        os.waitpid(child, 0)
        until(lambda: not blocked_connections(fleet), "the end of its connection")
        fleet.turn(owner, SERVING, (claim, DONE), limit=0)
        [replies] = fleet.redis.scan_iter(fleet.keys.replies("*"))
        assert 0 < fleet.redis.pttl(replies) <= 60_000
        assert fleet.redis.hlen(fleet.keys.waiters) == 0
