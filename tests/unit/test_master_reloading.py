"""Reloads that overlap. Each reload has its own outcome and gets a reply."""

import signal
import socket
import sys

import msgspec
import pytest

from rota.telemetry import log, log_events
from rota_supervisor import messages
from rota_supervisor.config.model import Config, Http, Limits, Log, PoolConfig, ScheduleConfig
from rota_supervisor.control.port import RequestKind, ScaleOrder
from rota_supervisor.layout import Role
from rota_supervisor.master.core import redis_events, reload_steps
from rota_supervisor.master.core.children import Child, ChildState, PoolKey
from rota_supervisor.master.core.effects import (
    ConfigureLog,
    DropPreparedAddress,
    Leave,
    ListenAt,
    PrepareAddress,
    RenewLeases,
    WriteLog,
)
from rota_supervisor.master.core.master_events import Died, LeasesRenewed, ProcessEnd, Ticked, ZygoteReported
from rota_supervisor.master.core.reasons import Reason
from rota_supervisor.master.core.start_backoff import BUDGETS, StartBackoff
from rota_supervisor.master.effects.listen_socket import ListenSocket
from rota_supervisor.master.effects.master_output import change_log
from support.cores import Core, PendingRequest
from support.servers import free_port

CONFIG = Config(workers=2, imports=("code.0",), http=Http(listen=""))
NEW_CODE = msgspec.structs.replace(CONFIG, imports=("code.1",))
NEW_SETTINGS = msgspec.structs.replace(CONFIG, limits=Limits(max_tasks=5))
NEWER_CODE = msgspec.structs.replace(CONFIG, imports=("code.2",))


class Reloads(Core):
    """A fleet whose configuration is reloaded. A test determines how the fleet's children behave."""

    def __init__(self) -> None:
        super().__init__(CONFIG)

    def reload(self, config: Config, *, fresh: bool = False) -> PendingRequest:
        """Send HUP to reload this configuration, or request a restart."""
        self.file = config
        return self.request(RequestKind.RESTART if fresh else RequestKind.RELOAD)

    def settle(self, backoffs: dict[PoolKey, StartBackoff] | None = None) -> bool:
        """Let the master check whether a candidate has taken over or failed. Return whether the master then logged that
        the fleet is ready.
        """
        self.state.backoffs = backoffs or {}
        effects = reload_steps.commit_or_refuse(self.state, self.now)
        self.carry_out(effects)
        return any(isinstance(effect, WriteLog) and effect.event == log_events.FLEET_READY for effect in effects)

    @property
    def fatal(self) -> str:
        """Return the reason why the master must end, or "" if it continues."""
        return "; ".join(text for effect in self.done(Leave) for text in effect.messages)

    def receive_from(self, zygote: Child, message: messages.Message) -> None:
        self.take(ZygoteReported(zygote.generation, message))

    def latest(self, role: Role, slot: int, pool: str = "default") -> Child:
        """Add a READY child of the latest generation, and return it."""
        latest = self.state.rollout.latest
        number = latest.of_pool(pool) if role is Role.WORKER else latest.code
        taken = {child.slot for child in self.state.children}
        if role is Role.ZYGOTE:
            slot = next(free for free in range(2, 8) if free not in taken)
        return self.child(role, slot, pool, number)

    def promote(self) -> None:
        """Make the zygote of the latest generation ready."""
        self.carry_out(reload_steps.zygote_ready(self.state, self.latest(Role.ZYGOTE, 2), self.now))

    def take_over(self) -> None:
        """Let the latest generation replace all others."""
        for old in self.state.children:
            old.state = ChildState.EXITED
            self.state.children.forget(old)
        self.promote()
        self.latest(Role.WORKER, 8)
        self.settle()

    def refuse(self) -> None:
        """Let the latest generation fail."""
        self.dies(self.latest(Role.ZYGOTE, 2), Reason.BOOT)

    def dies(self, child: Child, why: Reason | None = None, wait_status: int = signal.SIGKILL) -> None:
        """Let a child die before it is READY. If `why` is given, the master has killed it for this reason. Otherwise it
        died by itself.
        """
        child.state = ChildState.BOOTING if why is None else ChildState.KILLED
        child.why = why
        child.ready_at = None
        self.take(Died(child.slot, child.nonce, ProcessEnd(wait_status)))


@pytest.fixture
def reloads() -> Reloads:
    return Reloads()


def _result(pending: PendingRequest) -> object:
    return pending.result()["result"]


def test_a_reload_during_startup_succeeds_once_its_code_works(reloads: Reloads) -> None:
    reply = reloads.reload(NEW_CODE)
    assert not reply.done()
    reloads.take_over()
    assert _result(reply) == "success"


def test_worker_counts_changed_during_a_rollout_hold_if_it_succeeds(reloads: Reloads) -> None:
    reloads.take_over()
    code = reloads.reload(NEW_CODE)
    reloads.promote()
    counts = reloads.reload(msgspec.structs.replace(NEW_CODE, workers=5))
    assert reloads.state.config.workers == 5  # the number is applied at once, although the code is still being deployed
    assert not counts.done()
    reloads.take_over()
    assert (_result(code), _result(counts)) == ("success", "success")


def test_worker_counts_changed_during_a_rollout_are_undone_if_it_fails(reloads: Reloads) -> None:
    reloads.take_over()
    reloads.reload(NEW_CODE)
    counts = reloads.reload(msgspec.structs.replace(NEW_CODE, workers=5))
    reloads.refuse()
    assert reloads.state.config == CONFIG
    assert _result(counts) == "failure"


def test_working_code_is_accepted_even_if_a_later_reload_fails(reloads: Reloads) -> None:
    reloads.take_over()
    earlier = reloads.reload(NEW_CODE)
    reloads.promote()
    reloads.latest(Role.WORKER, 9)
    later = reloads.reload(NEWER_CODE)
    assert _result(earlier) == "success"
    reloads.refuse()
    assert _result(later) == "failure"
    assert reloads.state.config == NEW_CODE


def test_a_working_first_generation_stays_if_an_early_reload_fails(reloads: Reloads) -> None:
    reloads.promote()
    reloads.latest(Role.WORKER, 8)
    reply = reloads.reload(NEW_CODE)  # requested before a check can find that the first generation is complete
    assert reloads.settle()
    assert not reloads.settle()
    reloads.refuse()
    assert _result(reply) == "failure"
    assert reloads.state.config == CONFIG
    assert not reloads.settle()


def test_a_fleet_reports_at_once_that_it_is_running(reloads: Reloads) -> None:
    starting = _reports_sent(reloads)
    assert _reports_sent(reloads) == []
    reloads.promote()
    reloads.latest(Role.WORKER, 8)
    assert reloads.settle()
    assert (starting, _reports_sent(reloads)) == (["starting"], ["running"])


def _reports_sent(reloads: Reloads) -> list[str]:
    """Renew the leases if a renewal is due. Return the states of the node that the renewals report."""
    effects = redis_events.renew_when_due(reloads.state, reloads.now)
    reloads.take(LeasesRenewed())
    return [effect.report.state for effect in effects if isinstance(effect, RenewLeases)]


def test_new_code_takes_over_even_if_the_pool_has_no_workers(reloads: Reloads) -> None:
    reloads.take_over()
    reloads.request(RequestKind.SCALE, ScaleOrder("default", 0))
    reply = reloads.reload(NEW_CODE)
    for old in reloads.state.children.of(Role.WORKER):
        old.state = ChildState.DRAINING
    reloads.promote()
    reloads.settle()
    assert _result(reply) == "success"


# Reloads without new code


def test_new_settings_are_rolled_out_with_the_current_code(reloads: Reloads) -> None:
    reloads.take_over()
    reply = reloads.reload(NEW_SETTINGS)
    rollout = reloads.state.rollout
    assert rollout.promoted  # the settings need no new zygote, so there is nothing to wait for
    assert (rollout.latest.number, rollout.latest.code) == (2, 1)
    assert not reloads.settle()
    assert not reply.done()
    reloads.take_over()
    assert _result(reply) == "success"
    assert reloads.state.rollout.in_force.of_pool("default") == 2


def test_pools_with_unchanged_settings_keep_their_workers(reloads: Reloads) -> None:
    pools = {"a": PoolConfig(queues=("default",)), "b": PoolConfig(queues=("mail",))}
    config = Config(pools=pools, tiers=(("mail",), ("default",)))
    reloads.reload(config)
    reloads.promote()
    for number, pool in enumerate(pools):
        reloads.latest(Role.WORKER, 8 + number, pool)
    reloads.settle()
    number = reloads.state.rollout.in_force.of_pool("a")

    wider = {**pools, "b": PoolConfig(queues=("mail", "default"))}
    reply = reloads.reload(msgspec.structs.replace(config, pools=wider))
    in_force = reloads.state.rollout.in_force
    assert in_force.of_pool("a") == number != in_force.of_pool("b")
    reloads.latest(Role.WORKER, 10, "b")
    reloads.settle()
    assert not reply.done()  # the old worker of "b" has not been replaced yet
    next(child for child in reloads.state.children if child.slot == 9).state = ChildState.DRAINING
    reloads.settle()
    assert _result(reply) == "success"


def test_a_restart_request_loads_the_code_again_even_without_changes(reloads: Reloads) -> None:
    reloads.take_over()
    reply = reloads.reload(CONFIG, fresh=True)
    assert reloads.state.rollout.latest.code == 2
    assert not reloads.state.rollout.promoted
    reloads.take_over()
    assert _result(reply) == "success"


def test_settings_with_which_workers_fail_to_start_are_refused(reloads: Reloads) -> None:
    reloads.take_over()
    reply = reloads.reload(NEW_SETTINGS)
    reloads.settle({PoolKey(Role.WORKER, "default", 2): StartBackoff(failures=2)})
    assert _result(reply) == "failure"
    assert reloads.state.config == CONFIG


def test_a_queue_that_a_loaded_task_needs_cannot_be_removed(reloads: Reloads) -> None:
    reloads.receive_from(reloads.latest(Role.ZYGOTE, 2), messages.Imported((("note", "default"),)))
    reloads.take_over()
    reloads.file = msgspec.structs.replace(CONFIG, tiers=(("other",),))
    preview = reloads.request(RequestKind.PREVIEW).result()
    reply = reloads.reload(reloads.file)
    assert _result(reply) == preview["result"] == "failure"
    assert "'default' of task 'note'" in str(reply.result()["faults"])
    assert preview["faults"] == reply.result()["faults"]
    assert reloads.state.config == CONFIG


def test_a_schedule_of_an_unknown_task_must_name_its_queue(reloads: Reloads) -> None:
    reloads.receive_from(reloads.latest(Role.ZYGOTE, 2), messages.Imported((("note", "default"),)))
    reloads.take_over()
    reports_none = {"s": ScheduleConfig(task="other", every=3.0)}
    refused = reloads.reload(msgspec.structs.replace(CONFIG, schedules=reports_none))
    assert _result(refused) == "failure"
    assert "no imported module defines the task" in str(refused.result()["faults"])
    assert reloads.state.config == CONFIG

    known = {"s": ScheduleConfig(task="note", every=3.0), "t": ScheduleConfig(task="other", every=3.0, queue="default")}
    taken = reloads.reload(msgspec.structs.replace(CONFIG, schedules=known))
    assert taken.result() == {"result": "success", "changes": ["schedules"], "differences": []}

    reloads.reload(msgspec.structs.replace(NEW_CODE, schedules=reports_none))
    reloads.promote()
    assert reloads.state.config.schedules == known


# While the first generation starts


def test_a_reload_refused_during_startup_does_not_end_the_fleet(reloads: Reloads) -> None:
    reply = reloads.reload(NEW_CODE)
    reloads.refuse()
    assert _result(reply) == "failure"
    assert reloads.fatal == ""
    assert reloads.state.config == CONFIG
    assert reloads.state.rollout.latest.number == 1
    reloads.take_over()
    assert reloads.state.rollout.current is not None


def test_new_settings_during_startup_do_not_load_the_code_again(reloads: Reloads) -> None:
    reply = reloads.reload(NEW_SETTINGS)
    assert not reloads.state.rollout.promoted
    assert [each.code for each in reloads.state.rollout.generations] == [1]
    reloads.take_over()
    assert _result(reply) == "success"


def test_worker_counts_changed_during_startup_hold_despite_a_failed_reload(
    reloads: Reloads,
) -> None:
    counts = reloads.reload(msgspec.structs.replace(CONFIG, workers=5))
    code = reloads.reload(NEW_CODE)
    assert not counts.done()
    reloads.refuse()
    assert _result(code) == "failure"
    assert not counts.done()
    reloads.take_over()
    assert _result(counts) == "success"
    assert reloads.state.config.workers == 5


def test_worker_counts_changed_during_startup_fail_if_newer_code_takes_over(reloads: Reloads) -> None:
    counts = reloads.reload(msgspec.structs.replace(CONFIG, workers=5))
    code = reloads.reload(NEW_CODE)
    newer = reloads.reload(NEWER_CODE)
    assert _result(code) == "failure"
    assert not counts.done()
    reloads.take_over()
    assert [_result(newer), _result(counts)] == ["success", "failure"]
    assert reloads.state.config == NEWER_CODE


# Code that ends its process


def test_a_reload_fails_and_names_the_module_if_it_exits_during_import(reloads: Reloads) -> None:
    reloads.take_over()
    reply = reloads.reload(NEW_CODE)
    zygote = reloads.latest(Role.ZYGOTE, 3)
    reloads.receive_from(zygote, messages.Importing("code.1"))
    reloads.dies(zygote, wait_status=7 << 8)
    assert _result(reply) == "failure"
    assert "imports: code.1" in str(reply.result()["faults"])
    assert "exited with code 7" in str(reply.result()["faults"])


def test_a_reload_does_not_fail_if_its_zygote_is_killed_from_outside(reloads: Reloads) -> None:
    reloads.take_over()
    reply = reloads.reload(NEW_CODE)
    reloads.dies(reloads.latest(Role.ZYGOTE, 3), wait_status=signal.SIGKILL)
    assert not reply.done()
    reloads.take_over()
    assert _result(reply) == "success"


def test_the_listen_address_of_a_refused_configuration_is_closed() -> None:
    port = free_port()
    reloads = Reloads()
    listening = ListenSocket(lambda event: reloads.take(event) and None)
    reloads.handlers |= {
        PrepareAddress: listening.prepare_address,
        ListenAt: listening.listen_at,
        DropPreparedAddress: listening.drop_prepared,
    }
    reloads.take_over()
    refused = reloads.reload(msgspec.structs.replace(NEW_CODE, http=Http(listen=f"127.0.0.1:{port}")))
    # The master checks that the address is available before it loads anything
    socket.create_connection(("127.0.0.1", port)).close()
    reloads.refuse()
    assert _result(refused) == "failure"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
    listening.close()


def test_a_reload_fails_if_a_new_worker_hangs_at_startup(reloads: Reloads) -> None:
    reloads.take_over()
    reply = reloads.reload(NEW_CODE)
    reloads.promote()
    reloads.dies(reloads.latest(Role.WORKER, 9), Reason.BOOT)
    assert _result(reply) == "failure"
    assert "on_worker_start" in str(reply.result()["faults"])


def test_a_failed_worker_of_the_old_code_does_not_fail_the_reload(reloads: Reloads) -> None:
    reloads.take_over()
    old = reloads.latest(Role.WORKER, 9)
    reply = reloads.reload(NEW_CODE)
    reloads.dies(old, Reason.BOOT)
    assert not reply.done()


def test_a_pending_reload_fails_when_the_fleet_drains(reloads: Reloads) -> None:
    reloads.take_over()
    reply = reloads.reload(NEW_CODE)
    reloads.request(RequestKind.DRAIN)
    assert "draining" in str(reply.result()["faults"])


def test_a_first_generation_is_given_up_only_if_none_of_its_pools_works(reloads: Reloads) -> None:
    reloads.promote()
    failed = {PoolKey(Role.WORKER, "mail", 1): StartBackoff(failures=9)}
    works = {PoolKey(Role.WORKER, "default", 1): StartBackoff(ever_ready=True)}
    reloads.settle({**failed, **works})
    assert reloads.fatal == ""
    reloads.settle(failed)
    assert "workers of pool 'mail'" in reloads.fatal


def test_a_failed_reload_during_startup_restores_the_operators_count(
    reloads: Reloads,
) -> None:
    reloads.request(RequestKind.SCALE, ScaleOrder("default", 7))
    reloads.reload(msgspec.structs.replace(NEW_CODE, workers=5))
    assert reloads.state.wanted.counts == {"default": 5}
    reloads.refuse()
    assert reloads.state.config == CONFIG
    assert reloads.state.wanted.counts == {"default": 7}


def test_a_reload_does_not_fail_if_the_master_stops_its_loading_zygote(reloads: Reloads) -> None:
    reloads.take_over()
    reply = reloads.reload(NEW_CODE)
    reloads.dies(reloads.latest(Role.ZYGOTE, 3), Reason.STOP)
    assert not reply.done()


def test_a_reload_of_settings_does_not_fail_if_the_current_zygote_dies(reloads: Reloads) -> None:
    reloads.take_over()
    reply = reloads.reload(NEW_SETTINGS)
    # The new zygote dies in the middle of the deployment, with exit code 1.
    reloads.dies(reloads.latest(Role.ZYGOTE, 3), wait_status=1 << 8)
    assert not reply.done()


def test_a_reload_fails_if_a_new_pool_fails_to_start(reloads: Reloads) -> None:
    pools = {"default": PoolConfig(workers=2)}
    reloads.reload(Config(imports=CONFIG.imports, pools=pools))
    reloads.take_over()
    new = Config(imports=CONFIG.imports, pools={**pools, "new": PoolConfig()}, limits=Limits(max_tasks=5))
    reply = reloads.reload(new)
    number = reloads.state.rollout.latest.of_pool("new")
    reloads.settle({PoolKey(Role.WORKER, "new", number): StartBackoff(failures=2)})
    assert _result(reply) == "failure"
    assert list(reloads.state.config.pools) == ["default"]


@pytest.mark.parametrize(
    ("role", "pool", "words"),
    [
        (Role.WORKER, "default", "a worker was ready, but the next 10 starts in a row failed"),
        (Role.ZYGOTE, "generation-2", "imports"),
    ],
)
def test_a_reload_fails_when_the_failure_budget_of_its_children_is_spent(
    reloads: Reloads, role: Role, pool: str, words: str
) -> None:
    reloads.take_over()
    reply = reloads.reload(NEW_CODE)
    reloads.promote()
    key = PoolKey(role, pool, 2)
    reloads.settle({key: StartBackoff(failures=BUDGETS[role] - 1, ever_ready=True)})
    assert not reply.done()
    reloads.settle({key: StartBackoff(failures=10, ever_ready=True, last_end="no database")})
    assert words in str(reply.result()["faults"])
    assert "no database" in str(reply.result()["faults"])
    assert reloads.state.config == CONFIG


def test_the_old_log_format_is_kept_if_the_new_one_cannot_be_loaded(
    reloads: Reloads, monkeypatch: pytest.MonkeyPatch
) -> None:
    reloads.handlers |= {ConfigureLog: lambda effect: change_log(effect.config, "node")}
    reloads.take_over()
    monkeypatch.setitem(sys.modules, "rota.telemetry.log_text", None)  # as if a file of the package were missing
    before = log.logger()
    reloads.reload(msgspec.structs.replace(CONFIG, log=Log(format="console")))
    reloads.promote()
    assert reloads.state.config.log.format == "console"
    assert log.logger() is before
    before.info("still there")


def test_a_first_generation_that_was_ready_is_never_given_up(reloads: Reloads) -> None:
    reloads.promote()
    spent = StartBackoff(failures=50, ever_ready=True)
    keys = (PoolKey(Role.WORKER, "default", 1), PoolKey(Role.ZYGOTE, "generation-1", 1))
    reloads.settle(dict.fromkeys(keys, spent))
    assert reloads.fatal == ""


def test_a_reload_during_startup_is_refused_if_it_leaves_a_task_unserved(reloads: Reloads) -> None:
    reply = reloads.reload(msgspec.structs.replace(CONFIG, tiers=(("other",),)))
    zygote = reloads.latest(Role.ZYGOTE, 3)
    reloads.receive_from(zygote, messages.Imported((("note", "default"),)))
    reloads.carry_out(reload_steps.zygote_ready(reloads.state, zygote, 0.0))
    assert _result(reply) == "failure"
    assert reloads.state.rollout.promoted
    assert reloads.state.config == CONFIG


def test_new_queues_are_announced_only_once_the_reload_is_in_force(reloads: Reloads) -> None:
    reloads.take_over()
    reloads.take(Ticked())
    reloads.take(LeasesRenewed())
    assert "mail" not in reloads.done(RenewLeases)[-1].queues
    reloads.reload(msgspec.structs.replace(CONFIG, tiers=(("mail",), ("default",))))
    reloads.take_over()
    reloads.take(Ticked())
    assert "mail" in reloads.done(RenewLeases)[-1].queues
