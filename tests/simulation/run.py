"""The simulation of one seed. Fleets start, suffer faults, must recover, and are stopped."""

import random as the_random_module
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from unittest import mock

import msgspec

from rota.child import slots
from rota.telemetry import log, log_events
from rota_supervisor.config.model import Config
from rota_supervisor.layout import TICK_SECONDS
from rota_supervisor.master.core.plan import HARD_LIMIT_GRACE_SECONDS
from rota_supervisor.master.core.targets import LEAVE_SECONDS
from simulation.faults import AT_STAKE, CHANGES, EVERYTHING, FILES, KILLS, NETWORK, PROCESSES, kill_all_workers_of
from simulation.nemesis import LEASES, SPELLS, Fault, Nemesis, draw_config
from simulation.network import PATIENCE_SECONDS, Up
from simulation.orders import BAD_CODES
from simulation.process import Code
from simulation.serving import check_schedules, check_serving, longest_declaration, schedules_declared
from simulation.violation import Violation, require
from simulation.world import World

PROFILES: Final[tuple[tuple[Fault, ...], ...]] = (KILLS, PROCESSES, NETWORK, AT_STAKE, FILES, CHANGES, EVERYTHING)
FIRST_BOOT_FAILS: Final = 0.03
SIGNAL_HEARD_WITHIN: Final = 0.05
SERVER_AWAY: Final = 0.2  # the share of runs in which the server is unavailable when the fleet is stopped
ENCORES: Final = 0.3
ENCORE_SECONDS: Final = 0.15  # long enough for two or three failed starts
FLAPS: Final = 0.005
LOOK_SECONDS: Final = 0.25
FLAPPING_SECONDS: Final = 20.0
# The limit is the sum of at most 0.3 s for an import, 0.5 s for the workers and 0.3 s for failed starts, plus a
# reserve.
KILLS_MENDED_WITHIN: Final = 1.5
TASKS_ENDED_WITHIN: Final = 120.0
FORGOTTEN_WITHIN: Final = 2 * max(seconds for seconds, _ in LEASES) + 2.0


@dataclass(frozen=True, slots=True)
class Run:
    """The result of simulating a seed. `fault` describes the violation, or is "" if there was none."""

    seed: int
    fault: str
    trace: tuple[str, ...]

    @property
    def report(self) -> str:
        """Return a report with the seed, the command that replays it, and the trace up to the violation."""
        replay = f"SIMULATION_FIRST_SEED={self.seed} SIMULATION_SEEDS=1 pytest tests/simulation"
        return "\n".join([f"seed {self.seed}: {self.fault}", f"replay: {replay}", *self.trace])


class _Log(log.Logger):
    """A logger that adds the product's log lines to the trace."""

    def __init__(self, world: World) -> None:
        self._world = world

    def _note(self, event: str, fields: dict[str, Any]) -> None:
        if event == log_events.FLEET_CALL_FAILED and "exc_info" in fields:
            raise Violation(f"a coroutine of the master failed: {fields['exc_info']!r}")
        text = " ".join(f"{name}={value}" for name, value in fields.items())
        self._world.note("log", event, text)

    def debug(self, event: str, /, **fields: Any) -> None:
        self._note(event, fields)

    info = warning = error = critical = debug


@contextmanager
def simulated(world: World, seed: int) -> Iterator[None]:
    """Run a `with` block in which the product uses the world's clock and log, and random numbers from the seed."""
    logger = _Log(world)
    drawn = the_random_module.getstate()
    the_random_module.seed(seed)
    try:
        with (
            mock.patch.object(slots, "time", world.clock),
            mock.patch.object(log, "logger", lambda: logger),  # noqa: PT008 - a mock would keep every call
        ):
            yield
    finally:
        the_random_module.setstate(drawn)


def simulate(seed: int) -> Run:
    """Run the simulation of one seed."""
    world = World(seed)
    fault = ""
    with simulated(world, seed):
        try:
            _Story(world).write()
        except Exception as error:  # noqa: BLE001 - every failure is reported with its seed
            fault = str(error) if isinstance(error, AssertionError) else repr(error)
        finally:
            for node in world.living:
                node.lose()
    return Run(seed, fault, tuple(world.trace))


class _Story:
    """The sequence of events in one simulation, and the checks at its end."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = world.random
        self._nemesis = Nemesis(world)
        self._profile = self._random.choice(PROFILES)
        self._config = draw_config(self._random)
        if self._profile is KILLS:  # workers that exit at the end of their life would need more time
            world.trouble.life_length = 0

    def write(self) -> None:
        """Run the whole simulation, from the start of the first node to the stop of the last one."""
        draw = self._random.random()
        if draw < FIRST_BOOT_FAILS:
            self._run_failing_first_boot()
        elif draw < FIRST_BOOT_FAILS + FLAPS:
            self._run_flapping_code()
        else:
            self._run_faults()

    def _run_faults(self) -> None:
        names = "abc"[
            : self._random.choice([2, 2, 2, 3] if self._profile in (AT_STAKE, CHANGES) else [1, 1, 1, 1, 2, 2])
        ]
        for name in names:
            self._world.start(name, self._config)
        self._give_work()
        self._suffer()
        self._recover()
        if self._random.random() < ENCORES:
            self._fail_once_more()
        self._finish()
        self._check_reloads()
        self._stop()

    def _run(self, seconds: float) -> None:
        self._world.timeline.run(self._world.timeline.now + seconds)

    def _give_work(self) -> None:
        world = self._world
        for _ in range(self._random.choice([3, 8, 16])):
            seconds = self._random.choice([0.01, 0.01, 0.1, 0.5, 1.5, 1000.0 if self._random.random() < 0.1 else 0.02])
            at = self._random.uniform(0, 8)
            world.timeline.after(at, partial(world.enqueue, seconds))

    def _suffer(self) -> None:
        self._run(self._random.choice([0.0, 0.3, 1.5, 1.5]))
        for _ in range(self._random.choice([1, 2, 3, 5])):
            self._nemesis.strike(self._random.choice(self._profile))
            self._run(self._random.choice([0.001, 0.02, 0.2, 1.0, 2.5]))
        self._run(self._random.choice([0.0, 2.0, 5.0]))

    # After the last fault

    def _recover(self) -> None:
        world = self._world
        world.timeline.run(max(world.timeline.now, self._nemesis.busy_until))
        self._nemesis.heal()
        world.note("faults", "over")
        self._start_missing_nodes()
        self._run(SIGNAL_HEARD_WITHIN)
        bound = self._whole_within()
        since = world.timeline.now
        while (why := world.not_whole()) or not world.living:
            require(world.timeline.now - since <= bound, f"not whole {bound:.1f} s after the last fault: {why}")
            self._run(LOOK_SECONDS)
            self._start_missing_nodes()
        world.note("faults", "whole", f"after {world.timeline.now - since:.2f} s")

    def _start_missing_nodes(self) -> None:
        """Start the nodes again whose master gave up because too many processes were killed during its start. If no
        node is left, start all nodes again.
        """
        for node in list(self._world.nodes.values()):
            if node.failure is not None or not self._world.living:
                self._world.start(node.name, self._config)

    def _fail_once_more(self) -> None:
        """Check that a fleet that has completely recovered also recovers at once from new failures, because it has
        forgotten the earlier ones.
        """
        world = self._world
        node = self._random.choice(self._world.living)
        if any(not process.is_beating for process in node.processes.values()):
            return  # if a process has no heartbeat, it is replaced only after its deadline
        world.trouble.boots_die = 1.0
        kill_all_workers_of(node)
        self._run(ENCORE_SECONDS)
        world.trouble.boots_die = 0.0
        self._run(KILLS_MENDED_WITHIN)
        why = world.not_whole(node)
        require(not why, f"not whole {KILLS_MENDED_WITHIN} s after a failure as those that were over: {why}")

    def _whole_within(self) -> float:
        """Return the number of seconds after the last fault within which all nodes must be complete again. Killed
        processes are replaced at once. After other faults, each deadline and one back-off may have to pass first.

        A back-off doubles its delay as long as the problem lasts, so its last delay is about as long as the problem.
        """
        if self._profile is KILLS:
            return KILLS_MENDED_WITHIN
        limits = self._config.limits
        deadlines = limits.boot_seconds + limits.beat_seconds + limits.time_limit_seconds + HARD_LIMIT_GRACE_SECONDS
        backoff = min(self._config.restarts.backoff_max_seconds, 2 * max(SPELLS))
        return deadlines + backoff + TICK_SECONDS + KILLS_MENDED_WITHIN

    def _finish(self) -> None:
        world = self._world
        since = self._world.timeline.now
        while self._can_work and (left := world.unfinished()):
            require(world.timeline.now - since <= TASKS_ENDED_WITHIN, f"{len(left)} tasks never end: {left[:3]}")
            self._run(4 * LOOK_SECONDS)
        world.check_counters()

    @property
    def _can_work(self) -> bool:
        return any(node.ready_workers for node in self._world.living)

    def _check_reloads(self) -> None:
        self._check_what_is_announced()
        for node in self._world.living:
            require(all(reload_request.result for reload_request in node.reload_requests), "a reload never got a reply")
            accepted = [
                reload_request.config for reload_request in node.reload_requests if reload_request.result == "success"
            ]
            expected = accepted[-1] if accepted else node.first_config
            require(node.state.config == expected, "another configuration is in force than the last one accepted")
            if self._profile is FILES and node.reload_requests and is_good(node.reload_requests[-1].config):
                require(node.state.config == node.reload_requests[-1].config, "the last configuration does not win")

    def _check_what_is_announced(self) -> None:
        """Wait until every node has announced its last configuration, and then check the announcements. If the reply to
        a heartbeat was lost, the next heartbeat is sent only after the timeout.
        """
        world = self._world
        renew_seconds = max(node.state.config.lease.renew_seconds for node in world.living)
        self._run(PATIENCE_SECONDS + renew_seconds + LOOK_SECONDS)
        check_schedules(world)
        if world.clock_moved_at is not None:
            return  # if the clock was set back, an announcement may stay valid for longer
        if seconds := longest_declaration(world):
            self._run(seconds + renew_seconds + LOOK_SECONDS)
            check_serving(world)
        self._wait_until_forgotten()

    def _wait_until_forgotten(self) -> None:
        """Wait until schedules that no node declares have been removed. This takes one lease and one sweep after their
        last declaration.
        """
        world = self._world
        since = self._world.timeline.now
        while gone := world.server.schedules.keys() - schedules_declared(world):
            require(world.timeline.now - since <= FORGOTTEN_WITHIN, f"no node declares {gone}, and it is still there")
            self._run(LOOK_SECONDS)

    def _stop(self) -> None:
        world = self._world
        for _ in range(self._random.choice([0, 3])):
            world.enqueue(self._random.choice([0.5, 1000.0]))
        self._run(0.1)
        world.trouble.ignores_term = self._random.random() < 0.3
        if self._random.random() < SERVER_AWAY:
            world.network.set_up(self._random.choice([Up.DOWN, Up.STALLED]))
        crashes = sum(task.crashes for task in world.server.tasks)
        at_once = self._random.random() < 0.3
        drain = max((node.state.config.limits.drain_seconds for node in world.living), default=0.0)
        for node in world.living:
            node.stop(at_once=at_once)
        self._run((0.0 if at_once else drain + LEAVE_SECONDS) + LEAVE_SECONDS + 2 * TICK_SECONDS)
        require(not world.living, "a fleet that was stopped is still there")
        world.check_counters()
        if at_once:
            blamed = sum(task.crashes for task in world.server.tasks) - crashes
            require(blamed == 0, f"{blamed} tasks are blamed for being killed by a stop at once")

    def _run_failing_first_boot(self) -> None:
        code = self._random.choice(BAD_CODES)
        node = self._world.start("a", msgspec.structs.replace(self._config, imports=(f"{code}.0",)))
        self._run(self._config.limits.boot_seconds + 10.0)
        require(node.failure is not None, f"a first boot of code that {code} is not given up")

    def _run_flapping_code(self) -> None:
        node = self._world.start("a", msgspec.structs.replace(self._config, imports=(f"{Code.WORKERS_FLAP}.0",)))
        self._run(FLAPPING_SECONDS)
        require(node.alive, "a master gives up code that has worked")


def is_good(config: Config | None) -> bool:
    """Whether a reload with this configuration must succeed unless something else fails."""
    return config is not None and config.imports[0].startswith("good")
