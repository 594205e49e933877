"""Reloads in motion: what becomes of those that come while another is on its way, and that each is answered."""

import asyncio
import signal
import socket
import sys
from collections.abc import Iterator

import msgspec
import pytest

from rota.telemetry import log
from rota_supervisor.config.load import Loaded
from rota_supervisor.config.model import Config, Http, Limits, Log, PoolConfig
from rota_supervisor.control.port import Answer
from rota_supervisor.layout import Role
from rota_supervisor.master.children.child import Child, PoolKey, Reason, State
from rota_supervisor.master.children.fleet import Fleet
from rota_supervisor.master.deaths.account import Death, Scene
from rota_supervisor.master.deaths.reap import Ending
from rota_supervisor.master.planning.actions import Start
from rota_supervisor.master.planning.backoff import BUDGETS, Backoff
from rota_supervisor.master.planning.targets import worker_counts
from rota_supervisor.master.reload.listening import Listening
from rota_supervisor.master.reload.reloading import Reloading
from servers import free_port
from simulation.hands import NoListening, SilentGauges

CONFIG = Config(workers=2, imports=("code.0",), http=Http(listen=""))
NEW_CODE = msgspec.structs.replace(CONFIG, imports=("code.1",))
NEW_SETTINGS = msgspec.structs.replace(CONFIG, limits=Limits(max_tasks=5))
NEWER_CODE = msgspec.structs.replace(CONFIG, imports=("code.2",))


class Reloads:
    """A fleet's reloads, with children that are whatever a test says they are."""

    def __init__(self, loop: asyncio.AbstractEventLoop, listening: Listening | None = None) -> None:
        self._loop = loop
        self.fleet = Fleet()
        self.file = CONFIG
        self.reloading = Reloading(
            Loaded(CONFIG, {}, ()), lambda: Loaded(self.file, {}, ()), listening or NoListening(), SilentGauges()
        )

    def ask(self, config: Config, *, fresh: bool = False) -> "asyncio.Future[Answer]":
        """A HUP with that file, or a restart."""
        self.file = config
        answer: asyncio.Future[Answer] = self._loop.create_future()
        self.reloading.reload(answer, self.fleet, fresh=fresh)
        return answer

    def child(self, role: Role, slot: int, pool: str = "default") -> Child:
        """A READY child of the latest generation."""
        latest = self.reloading.rollout.latest
        number = latest.of_pool(pool) if role is Role.WORKER else latest.code
        child = self.fleet.apply(Start(role, pool, number, slot), 0.0)
        child.state = State.READY
        return child

    def promote(self) -> None:
        """The latest generation's zygote is ready."""
        self.reloading.zygote_ready(self.child(Role.ZYGOTE, 2 + self.reloading.rollout.latest.number % 2))

    def take_over(self) -> None:
        """The latest generation has replaced all others."""
        for old in list(self.fleet):
            old.state = State.EXITED
            self.fleet.forget(old)
        self.promote()
        self.child(Role.WORKER, 8)
        self.reloading.settle(self.fleet, {})

    def refuse(self) -> None:
        """The latest generation does not work."""
        self.dies(self.child(Role.ZYGOTE, 2 + self.reloading.rollout.latest.number % 2), Reason.BOOT)

    def dies(self, child: Child, why: Reason | None = None, wait_status: int = signal.SIGKILL) -> None:
        """A child dies before it is READY: killed by the master for that reason, or by itself."""
        child.state, child.why, child.ready_at = State.EXITED, why, None
        self.reloading.died_starting(Death(child, Reason.BOOT, Ending(wait_status), Scene(Limits())))
        self.fleet.forget(child)


@pytest.fixture
def reloads() -> Iterator[Reloads]:
    loop = asyncio.new_event_loop()
    yield Reloads(loop)
    loop.close()


def _result(answer: "asyncio.Future[Answer]") -> object:
    return answer.result()["result"]


def test_a_reload_while_the_first_generation_starts_is_answered_when_it_works(reloads: Reloads) -> None:
    answer = reloads.ask(NEW_CODE)
    assert not answer.done()
    reloads.take_over()
    assert _result(answer) == "success"


def test_counts_changed_while_code_is_rolled_in_hold_when_it_works(reloads: Reloads) -> None:
    reloads.take_over()
    code = reloads.ask(NEW_CODE)
    reloads.promote()
    counts = reloads.ask(msgspec.structs.replace(NEW_CODE, workers=5))
    assert reloads.reloading.config.workers == 5  # at once
    assert not counts.done()
    reloads.take_over()
    assert (_result(code), _result(counts)) == ("success", "success")


def test_counts_changed_while_code_is_rolled_in_go_with_it_when_it_does_not_work(reloads: Reloads) -> None:
    reloads.take_over()
    reloads.ask(NEW_CODE)
    counts = reloads.ask(msgspec.structs.replace(NEW_CODE, workers=5))
    reloads.refuse()
    assert reloads.reloading.config == CONFIG
    assert _result(counts) == "failure"


def test_code_that_works_is_accepted_though_a_later_reload_takes_its_place_and_fails(reloads: Reloads) -> None:
    reloads.take_over()
    earlier = reloads.ask(NEW_CODE)
    reloads.promote()
    reloads.child(Role.WORKER, 9)
    later = reloads.ask(NEWER_CODE)
    assert _result(earlier) == "success"
    reloads.refuse()
    assert _result(later) == "failure"
    assert reloads.reloading.config == NEW_CODE


def test_a_first_generation_that_worked_is_the_first_though_a_reload_takes_its_place_at_once(reloads: Reloads) -> None:
    reloads.promote()
    reloads.child(Role.WORKER, 8)
    answer = reloads.ask(NEW_CODE)  # before it was looked at again
    assert reloads.reloading.settle(reloads.fleet, {})
    assert not reloads.reloading.settle(reloads.fleet, {})
    reloads.refuse()
    assert _result(answer) == "failure"
    assert reloads.reloading.config == CONFIG
    assert not reloads.reloading.settle(reloads.fleet, {})


def test_new_code_takes_over_though_signals_have_left_no_worker_to_show_it(reloads: Reloads) -> None:
    reloads.take_over()
    reloads.reloading.scale("default", 0)
    answer = reloads.ask(NEW_CODE)
    for old in reloads.fleet.of(Role.WORKER):
        old.state = State.DRAINING
    reloads.promote()
    reloads.reloading.settle(reloads.fleet, {})
    assert _result(answer) == "success"


# What brings no new code


def test_new_settings_are_rolled_in_from_the_code_there_is(reloads: Reloads) -> None:
    reloads.take_over()
    answer = reloads.ask(NEW_SETTINGS)
    rollout = reloads.reloading.rollout
    assert rollout.promoted  # no zygote is waited for
    assert (rollout.latest.number, rollout.latest.code) == (2, 1)
    assert not reloads.reloading.settle(reloads.fleet, {})
    assert not answer.done()
    reloads.take_over()
    assert _result(answer) == "success"
    assert reloads.reloading.rollout.in_force.of_pool("default") == 2


def test_pools_whose_workers_are_told_nothing_new_keep_them(reloads: Reloads) -> None:
    pools = {"a": PoolConfig(queues=("default",)), "b": PoolConfig(queues=("mail",))}
    config = Config(pools=pools, tiers=(("mail",), ("default",)))
    reloads.ask(config)
    reloads.promote()
    for number, pool in enumerate(pools):
        reloads.child(Role.WORKER, 8 + number, pool)
    reloads.reloading.settle(reloads.fleet, {})
    number = reloads.reloading.rollout.in_force.of_pool("a")

    wider = {**pools, "b": PoolConfig(queues=("mail", "default"))}
    answer = reloads.ask(msgspec.structs.replace(config, pools=wider))
    in_force = reloads.reloading.rollout.in_force
    assert in_force.of_pool("a") == number != in_force.of_pool("b")
    reloads.child(Role.WORKER, 10, "b")
    reloads.reloading.settle(reloads.fleet, {})
    assert not answer.done()  # the old worker of "b" is still there
    next(child for child in reloads.fleet if child.slot == 9).state = State.DRAINING
    reloads.reloading.settle(reloads.fleet, {})
    assert _result(answer) == "success"


def test_a_restart_loads_the_code_anew_though_nothing_changed(reloads: Reloads) -> None:
    reloads.take_over()
    answer = reloads.ask(CONFIG, fresh=True)
    assert reloads.reloading.rollout.latest.code == 2
    assert not reloads.reloading.rollout.promoted
    reloads.take_over()
    assert _result(answer) == "success"


def test_settings_under_which_workers_do_not_start_go_with_their_pool(reloads: Reloads) -> None:
    reloads.take_over()
    answer = reloads.ask(NEW_SETTINGS)
    reloads.reloading.settle(reloads.fleet, {PoolKey(Role.WORKER, "default", 2): Backoff(failures=2)})
    assert _result(answer) == "failure"
    assert reloads.reloading.config == CONFIG


def test_a_queue_that_a_task_of_the_code_there_is_needs_cannot_be_taken_away(reloads: Reloads) -> None:
    reloads.reloading.imported(reloads.child(Role.ZYGOTE, 4), {"note": "default"})
    reloads.take_over()
    reloads.file = msgspec.structs.replace(CONFIG, tiers=(("other",),))
    preview = reloads.reloading.preview()
    answer = reloads.ask(reloads.file)
    assert _result(answer) == preview["result"] == "failure"
    assert "'default' of task 'note'" in str(answer.result()["faults"])
    assert preview["faults"] == answer.result()["faults"]
    assert reloads.reloading.config == CONFIG


# While the first generation starts


def test_a_reload_that_is_refused_while_the_first_generation_loads_ends_nothing(reloads: Reloads) -> None:
    answer = reloads.ask(NEW_CODE)
    reloads.refuse()
    assert _result(answer) == "failure"
    assert reloads.reloading.fatal is None
    assert reloads.reloading.config == CONFIG
    assert reloads.reloading.rollout.latest.number == 1
    reloads.take_over()
    assert reloads.reloading.rollout.current is not None


def test_new_settings_while_the_first_code_loads_wait_for_it_and_do_not_load_it_again(reloads: Reloads) -> None:
    answer = reloads.ask(NEW_SETTINGS)
    assert not reloads.reloading.rollout.promoted
    assert [each.code for each in reloads.reloading.rollout.generations] == [1]
    reloads.take_over()
    assert _result(answer) == "success"


# Code that ends its process


def test_a_module_that_ends_its_process_is_refused_at_once_by_name(reloads: Reloads) -> None:
    reloads.take_over()
    answer = reloads.ask(NEW_CODE)
    zygote = reloads.child(Role.ZYGOTE, 3)
    reloads.reloading.importing(zygote, "code.1")
    reloads.dies(zygote, wait_status=7 << 8)
    assert _result(answer) == "failure"
    assert "imports: code.1" in str(answer.result()["faults"])
    assert "exit code 7" in str(answer.result()["faults"])


def test_a_zygote_that_somebody_kills_is_no_reason_to_refuse_its_code(reloads: Reloads) -> None:
    reloads.take_over()
    answer = reloads.ask(NEW_CODE)
    reloads.dies(reloads.child(Role.ZYGOTE, 3), wait_status=signal.SIGKILL)
    assert not answer.done()
    reloads.take_over()
    assert _result(answer) == "success"


def test_nobody_listens_where_a_configuration_that_was_refused_would_have() -> None:
    port = free_port()
    listening, loop = Listening(), asyncio.new_event_loop()
    reloads = Reloads(loop, listening)
    reloads.take_over()
    refused = reloads.ask(msgspec.structs.replace(NEW_CODE, http=Http(listen=f"127.0.0.1:{port}")))
    socket.create_connection(("127.0.0.1", port)).close()  # whether it can be had is known before anything is loaded
    reloads.refuse()
    assert _result(refused) == "failure"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
    listening.close()
    loop.close()


def test_a_worker_that_hangs_as_it_starts_has_its_code_refused_without_another_try(reloads: Reloads) -> None:
    reloads.take_over()
    answer = reloads.ask(NEW_CODE)
    reloads.promote()
    reloads.dies(reloads.child(Role.WORKER, 9), Reason.BOOT)
    assert _result(answer) == "failure"
    assert "on_worker_start" in str(answer.result()["faults"])


def test_a_worker_of_the_old_code_that_does_not_start_says_nothing_of_the_new(reloads: Reloads) -> None:
    reloads.take_over()
    old = reloads.child(Role.WORKER, 9)
    answer = reloads.ask(NEW_CODE)
    reloads.dies(old, Reason.BOOT)
    assert not answer.done()


def test_whoever_waits_for_a_reload_is_answered_when_the_fleet_leaves(reloads: Reloads) -> None:
    reloads.take_over()
    answer = reloads.ask(NEW_CODE)
    reloads.reloading.stopped()
    assert "draining" in str(answer.result()["faults"])


def test_a_first_generation_goes_on_with_the_pools_that_work(reloads: Reloads) -> None:
    reloads.promote()
    failed = {PoolKey(Role.WORKER, "mail", 1): Backoff(failures=9)}
    works = {PoolKey(Role.WORKER, "default", 1): Backoff(ever_ready=True)}
    reloads.reloading.settle(reloads.fleet, {**failed, **works})
    assert reloads.reloading.fatal is None
    reloads.reloading.settle(reloads.fleet, failed)
    assert "workers of pool 'mail'" in str(reloads.reloading.fatal)


def test_an_operators_number_said_while_the_fleet_starts_is_back_when_a_reload_fails_before_anything_worked(
    reloads: Reloads,
) -> None:
    reloads.reloading.scale("default", 7)
    reloads.ask(msgspec.structs.replace(NEW_CODE, workers=5))
    assert worker_counts(reloads.reloading.rollout, reloads.reloading.scaling) == {"default": 5}
    reloads.refuse()
    assert reloads.reloading.config == CONFIG
    assert worker_counts(reloads.reloading.rollout, reloads.reloading.scaling) == {"default": 7}


def test_a_zygote_that_is_told_to_leave_while_it_loads_refuses_nothing(reloads: Reloads) -> None:
    reloads.take_over()
    answer = reloads.ask(NEW_CODE)
    reloads.dies(reloads.child(Role.ZYGOTE, 3), Reason.STOP)
    assert not answer.done()


def test_the_death_of_the_zygote_in_use_says_nothing_of_new_settings(reloads: Reloads) -> None:
    reloads.take_over()
    answer = reloads.ask(NEW_SETTINGS)
    reloads.dies(reloads.child(Role.ZYGOTE, 3), wait_status=1 << 8)  # its replacement, while code is being deployed
    assert not answer.done()


def test_a_pool_that_comes_with_a_candidate_and_does_not_start_has_it_refused(reloads: Reloads) -> None:
    pools = {"default": PoolConfig(workers=2)}
    reloads.ask(Config(imports=CONFIG.imports, pools=pools))
    reloads.take_over()
    new = Config(imports=CONFIG.imports, pools={**pools, "new": PoolConfig()}, limits=Limits(max_tasks=5))
    answer = reloads.ask(new)
    number = reloads.reloading.rollout.latest.of_pool("new")
    reloads.reloading.settle(reloads.fleet, {PoolKey(Role.WORKER, "new", number): Backoff(failures=2)})
    assert _result(answer) == "failure"
    assert list(reloads.reloading.config.pools) == ["default"]


@pytest.mark.parametrize(
    ("role", "pool", "words"),
    [(Role.WORKER, "default", "one was ready, and then 10 in a row failed"), (Role.ZYGOTE, "generation-2", "imports")],
)
def test_code_that_begins_well_and_then_cannot_go_on_is_refused_when_its_budget_is_spent(
    reloads: Reloads, role: Role, pool: str, words: str
) -> None:
    reloads.take_over()
    answer = reloads.ask(NEW_CODE)
    reloads.promote()
    key = PoolKey(role, pool, 2)
    reloads.reloading.settle(reloads.fleet, {key: Backoff(failures=BUDGETS[role] - 1, ever_ready=True)})
    assert not answer.done()
    reloads.reloading.settle(reloads.fleet, {key: Backoff(failures=10, ever_ready=True, words="no database")})
    assert words in str(answer.result()["faults"])
    assert "no database" in str(answer.result()["faults"])
    assert reloads.reloading.config == CONFIG


def test_a_log_format_that_cannot_be_loaded_ends_no_fleet(reloads: Reloads, monkeypatch: pytest.MonkeyPatch) -> None:
    reloads.take_over()
    monkeypatch.setitem(sys.modules, "rota.telemetry.log_text", None)  # as when its files are gone
    before = log.logger()
    reloads.ask(msgspec.structs.replace(CONFIG, log=Log(format="console")))
    reloads.promote()
    assert reloads.reloading.config.log.format == "console"
    assert log.logger() is before
    before.info("still there")


def test_a_first_generation_that_began_well_is_never_given_up(reloads: Reloads) -> None:
    reloads.promote()
    spent = Backoff(failures=50, ever_ready=True)
    keys = (PoolKey(Role.WORKER, "default", 1), PoolKey(Role.ZYGOTE, "generation-1", 1))
    reloads.reloading.settle(reloads.fleet, dict.fromkeys(keys, spent))
    assert reloads.reloading.fatal is None


def test_the_first_generation_goes_on_when_what_took_its_place_does_not_serve_its_tasks(reloads: Reloads) -> None:
    answer = reloads.ask(msgspec.structs.replace(CONFIG, tiers=(("other",),)))
    zygote = reloads.child(Role.ZYGOTE, 3)
    reloads.reloading.imported(zygote, {"note": "default"})
    reloads.reloading.zygote_ready(zygote)
    assert _result(answer) == "failure"
    assert reloads.reloading.rollout.promoted
    assert reloads.reloading.config == CONFIG
