"""The simulated worker. Its decisions come from the product's `decide` and `Fence`, and only its actions are
simulated.
"""

from collections import deque
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from rota.child.child_process import EXIT_DRAINED, EXIT_LOST, Fence
from rota.child.child_settings import WorkerSettings, worker_settings_from_json
from rota.child.slots import Phase, RecycleReason, boottime_ns
from rota.durations import Backoff
from rota.protocol.entry import parse_entry
from rota.protocol.outcome import ARGS_PER_SETTLEMENT, DONE, Settlement, pack_settlement
from rota.server.server_errors import ServerError
from rota.worker.attempt import ShortLimits
from rota.worker.loop_state import STEPS, Mode, Need, Step, mode_of, need_of
from rota_supervisor.layout import Role
from simulation.process import SEGFAULT_STATUS, Code
from simulation.running import Hand, Running, kill_policy_of
from simulation.server import Parked, Task
from simulation.timeline import NANOSECONDS

PARK_SECONDS: Final = 20.0
HOLD_SECONDS: Final = 0.2
FENCED_TURN_NS: Final = 1_000_000_000
# The longest time from checking the fence to starting the task, as a share of the lease.
START_WITHIN_SHARE: Final = 0.09
settings_of = lru_cache(maxsize=64)(worker_settings_from_json)


class Worker(Running):
    """A worker process. It decides on its next step, takes the step, and decides again. A worker that runs several
    tasks at once also decides while they run, and whenever one of them ends.
    """

    role = Role.WORKER

    def start(self, owner: str, settings: WorkerSettings, code: Code) -> None:
        self.owner = owner
        self.settings = settings
        self.fence = Fence(self.slot, settings.lease_seconds)
        self.code = code
        self._waiting: deque[Task] = deque()
        self._finished: list[tuple[str, int]] = []  # the task ids, each with the size of the outcome in bytes
        self._lost = self._idle = False
        self._last_turn_ns = 0
        self._short_limits = ShortLimits(self.slot, self.node.ring)
        self._attempts = 0
        self.unresponsive = False
        # The worker requests to be replaced after this share of its life.
        self._wishes_after = self.world.random.uniform(0.5, 1.0)
        self._parked: Parked | None = None
        self._backoff = Backoff(0.05, 2.0, self.world.random.uniform)
        self.world.workers[owner] = self
        self.later(self.world.random.uniform(0.002, 0.006), self._boot)

    def _boot(self) -> None:
        trouble = self.world.trouble
        draw = self.world.random.random()
        if not self.enter_slot():
            return
        if self.code is Code.WORKERS_DIE or draw < trouble.boots_die:
            self.later(0.01, lambda: self.kill(SEGFAULT_STATUS))
        elif draw < trouble.boots_die + trouble.boots_hang:
            self.hang()
        else:
            self.later(self.world.random.uniform(0.005, trouble.boot_seconds), self._take_turn)

    # Decisions

    def _take_turn(self) -> None:
        now_ns = boottime_ns()
        fenced = self.fence.is_up(now_ns)
        quiet = self.slot.quiet_requested
        leaving = self._is_leaving
        self._show(leaving=leaving)
        mode = mode_of(lost=self._lost, leaving=leaving, fenced=fenced, quiet=quiet, spent=self._is_spent)
        match STEPS[mode][self._need(mode, now_ns)]:
            case Step.RUN:
                self._run_next(now_ns)
            case Step.CLAIM:
                self._turn(len(self.free) if self.several else self.world.trouble.claim_limit)
            case Step.SETTLE:
                self._turn(0)
            case Step.PARK:
                self._park()
            case Step.HOLD:
                self.later(HOLD_SECONDS, self._take_turn)
            case Step.GIVE_BACK:
                self._give_back()
            case Step.LEAVE if self.running:
                self.later(HOLD_SECONDS, self._take_turn)
            case Step.LEAVE:
                self.exit(EXIT_LOST if self._lost else EXIT_DRAINED)

    def _show(self, *, leaving: bool) -> None:
        if leaving and self.slot.phase is not Phase.DRAINING:
            self.slot.phase = Phase.DRAINING
            self.node.ring()
        if self.several and not leaving and self.slot.phase in (Phase.IDLE, Phase.BUSY, Phase.DRAINING):
            self.slot.phase = Phase.BUSY if self.running and not self.slot.quiet_requested else Phase.IDLE
        if self.slot.phase in (Phase.IDLE, Phase.QUIET) and self.slot.quiet_requested is (
            self.slot.phase is Phase.IDLE
        ):
            self.slot.phase = Phase.QUIET if self.slot.quiet_requested else Phase.IDLE
            self.node.ring()
        length = self.world.trouble.life_length
        if length and self._attempts >= length * self._wishes_after:
            self.wish(RecycleReason.MAX_TASKS)

    def _need(self, mode: Mode, now_ns: int) -> Need:
        if self._waiting:
            return Need.CLAIMED
        return need_of(
            unconfirmed=bool(self._finished),
            may_hold_more=False,
            turn_due=mode is not Mode.WORKING and now_ns - self._last_turn_ns > FENCED_TURN_NS,
            nothing_found=self._idle or not self.free,
        )

    def term(self) -> None:
        """Receive SIGTERM. An unresponsive worker ignores it."""
        if not self.unresponsive:
            super().term()

    @property
    def _is_leaving(self) -> bool:
        return self.stop_requested and not self.world.trouble.ignores_term

    # Replacement

    def wish(self, wish: RecycleReason) -> None:
        """Write a request into the slot to replace the worker for this reason. The worker continues to work until the
        master replaces it.
        """
        if self.slot.recycle_reason is RecycleReason.NONE:
            self.slot.recycle_reason = wish
            self.node.ring()

    @property
    def _is_spent(self) -> bool:
        return 0 < self.world.trouble.life_length <= self._attempts

    # Turns

    def _turn(self, limit: int) -> None:
        held = self._held
        sent = len(self._finished)
        done = [task_id for task_id, _ in self._finished]
        receive = self._turn_receiver(limit, sent)
        self.world.network.call(self, lambda _: self.world.server.turn(self.owner, held, done, limit), receive)

    @property
    def _held(self) -> list[str]:
        return [task.id for task in (*self._waiting, *(hand.task for hand in self.hands.values()))]

    def _turn_receiver(self, limit: int, sent: int) -> Callable[[tuple[str, list[Task]] | ServerError], None]:
        def receive(reply: tuple[str, list[Task]] | ServerError) -> None:
            if isinstance(reply, ServerError):
                self.later(self._backoff.next_seconds(), self._take_turn)
                return
            self._take(reply, limit, sent)
            self._take_turn()

        return receive

    def _take(self, reply: tuple[str, list[Task]], limit: int, sent: int) -> None:
        status, claims = reply
        self._backoff.reset()
        if not self.was_ready:
            self.show_ready()
            if self.code is Code.WORKERS_FLAP:
                self.later(0.01, lambda: self.kill(SEGFAULT_STATUS))
        self.slot.drop_outcomes(ARGS_PER_SETTLEMENT * sent, sum(size for _, size in self._finished[:sent]))
        del self._finished[:sent]
        self._waiting.extend(claims)
        self._lost = status == "lost"
        self._idle = limit > 0 and status == "ok" and not claims
        self._last_turn_ns = boottime_ns()

    def _park(self) -> None:
        network = self.world.network
        parked = Parked(self.owner, self._held, lambda found: network.reply(self, lambda: self._woken(parked, found)))
        self._parked = parked
        if self.free and self.location not in network.cut:
            self.world.server.park(parked)
        self.later(PARK_SECONDS, lambda: self._patience_over(parked))

    def _woken(self, parked: Parked, reply: tuple[str, list[Task]]) -> None:
        if self._parked is parked:
            self._parked = None
            self._take(reply, 1, 0)
            self._take_turn()

    def _patience_over(self, parked: Parked) -> None:
        if self._parked is not parked:
            return
        self._parked = None
        self.world.server.unpark(parked)
        self._idle = False
        self._take_turn()

    def receive_term(self) -> None:
        """Let a worker that sleeps decide at once. A worker that does not sleep decides when its current step ends."""
        self.look_up()

    def look_up(self) -> None:
        """Decide again if the worker sleeps, for example after the master has written to the worker's slot."""
        if self._parked is not None:
            self._patience_over(self._parked)

    def leave_the_bells(self) -> None:
        """End the worker's blocking call on the server, because the worker exits. If the worker's node is cut off, the
        server cannot notice this.
        """
        if self._parked is not None and self.location not in self.world.network.cut:
            self.world.server.unpark(self._parked)

    # Tasks

    def _run_next(self, read_ns: int) -> None:
        task = self._waiting.popleft()
        random = self.world.random
        trouble = self.world.trouble
        self._attempts += 1
        self.world.witness.allowed(self, task)
        soft_seconds = 0.0
        task_index = self.free[0]
        if random.random() < trouble.soft_limits and not task.once:
            soft_seconds = self.settings.time_limit_seconds * random.uniform(0.2, 0.8)
        hand = self.hands[task_index] = Hand(task, self.slot.record(task_index), read_ns / NANOSECONDS, soft_seconds)
        limit_ns, soft_ns = hand.extend(read_ns, self.settings.time_limit_seconds)
        packed_policy = kill_policy_of(task).to_word()
        hand.record.start(task.text, "", read_ns, limit_ns, soft_deadline_ns=soft_ns, kill_policy=packed_policy)
        self.slot.phase = Phase.BUSY
        slow = self.settings.lease_seconds * START_WITHIN_SHARE
        most = slow if random.random() < trouble.slow_starts else 0.001
        if soft_seconds:
            self._short_limits.note(round(soft_seconds * NANOSECONDS), read_ns)
        start = self._mark_started if task.once else self._start
        self.later(random.uniform(0.0, most), lambda: start(hand, read_ns))
        if self.several:
            self._take_turn()

    def _mark_started(self, hand: Hand, _read_ns: int) -> None:
        """Set the start mark of a task that may be started at most once. If that succeeds and the fence still permits a
        start, start the task.
        """
        server = self.world.server
        task = hand.task

        def receive(reply: bool | ServerError) -> None:
            now_ns = boottime_ns()
            if reply is True and not self.fence.is_up(now_ns):
                self.world.witness.allowed(self, task)
                self.later(self.world.random.uniform(0.0, 0.001), lambda: self._start(hand, now_ns))
                return
            self._leave(hand)
            self._waiting.appendleft(task)
            self.later(self._backoff.next_seconds(), self.look_up if self.several else self._take_turn)

        self.world.network.call(self, lambda _: server.mark_started(self.owner, task), receive)

    def _start(self, hand: Hand, read_ns: int) -> None:
        hand.task.starts += 1
        self.world.witness.started(self, hand.task, read_ns)
        if self.world.random.random() < self.world.trouble.beats:
            self.later(self.settings.time_limit_seconds / 2, lambda: self._heartbeat(hand))
        hand.give_up = lambda: self._end_task(hand)
        self.later(hand.task.seconds, hand.give_up)
        self.receive_cancel()  # a cancellation order may have arrived before the start

    def _runs(self, hand: Hand) -> bool:
        return self.hands.get(hand.record.task_index) is hand

    def _heartbeat(self, hand: Hand) -> None:
        """Record a heartbeat of the task, which restarts the task's time limits."""
        if self._runs(hand):
            hand.record.extend(*hand.extend(boottime_ns(), self.settings.time_limit_seconds))

    def interrupt(self) -> None:
        """Interrupt the tasks whose soft limit has expired, as the master has requested. Some tasks ignore the
        interrupt.
        """
        self.world.witness.interrupted(self)
        for hand in list(self.hands.values()):
            if hand.interrupted_for != hand.soft_until < self.boottime():
                hand.interrupted_for = hand.soft_until
                self._cancel(hand)

    def receive_cancel(self) -> None:
        """Interrupt the running tasks that are cancelled. Some tasks ignore the interrupt."""
        for hand in list(self.hands.values()):
            if hand.record.is_cancelled():
                self.world.witness.cancelled(self, hand.task)
                self._cancel(hand)

    def _cancel(self, hand: Hand) -> None:
        if self.world.random.random() >= self.world.trouble.swallowed:
            self.later(0.0, hand.give_up)

    def _end_task(self, hand: Hand) -> None:
        if not self._runs(hand):
            return  # the task has already been interrupted
        packed = pack_settlement(Settlement(parse_entry(hand.task.text), DONE))
        self._finished.append((hand.task.id, len(packed)))
        self.slot.add_outcomes(ARGS_PER_SETTLEMENT, packed)
        self._leave(hand)
        if self.several:
            self.look_up()
            return
        self.slot.phase = Phase.IDLE
        self._take_turn()

    def _leave(self, hand: Hand) -> None:
        hand.record.end()
        del self.hands[hand.record.task_index]

    def _give_back(self) -> None:
        released = [task.id for task in reversed(self._waiting)]
        self._waiting.clear()
        server = self.world.server

        def receive(reply: ServerError | None) -> None:
            self.later(self._backoff.next_seconds() if isinstance(reply, ServerError) else 0.0, self._take_turn)

        self.world.network.call(self, lambda _: server.release(self.owner, released), receive)
