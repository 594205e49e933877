"""From an owner to a child that is READY: asking a zygote for a worker, and taking in what is answered and shown."""

from rota.telemetry import events, log
from rota_supervisor import messages
from rota_supervisor.layout import Role
from rota_supervisor.master.children.child import Child, State
from rota_supervisor.master.children.hands import Hands
from rota_supervisor.master.children.observing import observe
from rota_supervisor.master.deaths.deaths import Deaths
from rota_supervisor.master.records import Records, now_seconds


class Births:
    """Moves workers from REGISTERING to BOOTING, or to their end, and all children on to READY."""

    def __init__(self, records: Records, hands: Hands, deaths: Deaths) -> None:
        self._records = records
        self._hands = hands
        self._deaths = deaths

    def registered(self, child: Child) -> None:
        """Its owner is known and its slot begun: ask the zygote for it."""
        zygote = self._zygote_of(child)
        told = self._records.told_to(child)
        if zygote is None or told is None:
            error = "its zygote or its pool went before it could be asked for"
            self._deaths.never_born(child, error, from_outside=True)
            return
        self._records.memory.slot(child.slot).quiet_asked = self._records.quiet.asked
        child.move(State.ASKED)
        child.asked_at = now_seconds()
        child.asked_of = zygote.nonce
        child.lease_seconds = told.settings.lease_seconds
        self._hands.fork(zygote, child, told.text)

    def _zygote_of(self, child: Child) -> Child | None:
        """The zygote that a worker is forked from, when it is READY."""
        generation = self._records.reloading.rollout.of(child.generation)
        zygotes = self._records.fleet.of(Role.ZYGOTE, State.READY)
        return next((each for each in zygotes if generation is not None and each.generation == generation.code), None)

    def listen(self) -> None:
        """Take in what zygotes and intermediates have said so far."""
        for zygote, message in self._hands.hear():
            self._take(zygote, message)

    def look(self, child: Child, now: float, awake_since: float = 0.0) -> None:
        """Take in what its slot says, see `observe`; the first READY of a child ends the back-off of its pool."""
        records = self._records
        if not observe(child, records.memory.slot(child.slot), now, awake_since):
            return
        records.backoffs[child.key] = records.backoff_of(child.key).after_ready(now)
        if child.role is Role.ZYGOTE:
            self.listen()  # what it imported was sent before it showed itself ready
            records.reloading.zygote_ready(child)

    def _take(self, zygote: Child, message: messages.Message | None) -> None:
        match message:
            case None:
                self._zygote_gone(zygote)
            case messages.Spawned(slot, nonce, pid):
                self._born(slot, nonce, pid)
            case messages.ForkFailed(slot, nonce, error):
                self._not_born(slot, nonce, error)
            case messages.Importing(module):
                self._records.reloading.importing(zygote, module)
            case messages.Imported(tasks):
                self._records.reloading.imported(zygote, dict(tasks))
            case messages.Warned(text):
                log.logger().warning(events.ZYGOTE_WARNING, generation=zygote.generation, warning=text)
            case messages.Ready(modules, objects):
                generation = zygote.generation
                log.logger().info(events.ZYGOTE_READY, generation=generation, modules=modules, objects_frozen=objects)
            case messages.ImportFailed(module, error, where):
                log.logger().error(events.ZYGOTE_FAILED, module=module, error=error, where=where)
                self._records.reloading.import_failed(zygote, module, f"{error} ({where})" if where else error)
            case other:
                raise ValueError(f"a zygote sends no {type(other).__name__}")

    def _born(self, slot: int, nonce: int, pid: int) -> None:
        child = self._records.fleet.get(slot, nonce)
        if child is None or child.pid:
            return
        child.pid = pid
        if child.state is State.ASKED:
            child.move(State.BOOTING)
        elif child.state is State.KILLED:
            self._hands.kill(child)

    def recognised(self, pid: int) -> Child | None:
        """The worker that took its slot as this process, when whoever was to report it died before that."""
        for child in self._records.fleet.of(Role.WORKER):
            slot = self._records.memory.slot(child.slot)
            if not child.pid and slot.pid == pid and slot.nonce == child.nonce:
                self._born(child.slot, child.nonce, pid)
                return child
        return None

    def _not_born(self, slot: int, nonce: int, error: str) -> None:
        child = self._records.fleet.get(slot, nonce)
        if child is not None and _is_unborn(child):
            self._end_unborn(child, error, from_outside=False)

    def _zygote_gone(self, zygote: Child) -> None:
        """What it was asked for and nobody has reported will not come; nor can anything else be asked of it.

        Its channel may end before there is a zombie to wait for. Until then it must not count as READY, or the next
        plan would ask it for workers. One that is BOOTING still is asked for none: its exit code says why it leaves.
        """
        self.look(zygote, now_seconds())  # READY, if only since we last looked, it did not die of its boot
        if zygote.state is State.READY:
            zygote.move(State.KILLED)
            self._hands.kill(zygote)
        for child in self._records.fleet.of(Role.WORKER):
            if _is_unborn(child) and child.asked_of == zygote.nonce:
                self._end_unborn(child, "its zygote died", from_outside=True)

    def _end_unborn(self, child: Child, error: str, *, from_outside: bool) -> None:
        slot = self._records.memory.slot(child.slot)
        if slot.pid > 1:  # the intermediate died before its report, and the worker lives
            self._born(child.slot, child.nonce, slot.pid)
        else:
            # A worker that comes late finds no place: its owner is retired, which may take as long as an outage.
            slot.begin(0)
            self._deaths.never_born(child, error, from_outside=from_outside)


def _is_unborn(child: Child) -> bool:
    """Whether it was asked for, and nobody has said yet what became of it."""
    return child.state in (State.ASKED, State.KILLED) and not child.pid
