"""From the decision to start a child to its process: owners registered, a zygote asked, what it answers."""

from rota.telemetry import events as names
from rota_supervisor import messages
from rota_supervisor.layout import Role
from rota_supervisor.master.core import dying, reloading
from rota_supervisor.master.core import effects as do
from rota_supervisor.master.core.children import Child, ChildState
from rota_supervisor.master.core.effects import Effect
from rota_supervisor.master.core.events import (
    OwnersRegistered,
    StackFileMade,
    Started,
    StopSeen,
    ZygoteGone,
    ZygoteSaid,
)
from rota_supervisor.master.core.leasing import hurry_for
from rota_supervisor.master.core.state import Code, MasterState


def owners_registered(state: MasterState, event: OwnersRegistered, now: float) -> list[Effect]:
    """Workers have owners: ask the zygote for them. The owner of one that was abandoned meanwhile expires, empty."""
    effects: list[Effect] = []
    for slot, nonce, owner in event.owners:
        child = state.children.get(slot, nonce)
        if child is not None and child.state is ChildState.REGISTERING:
            child.owner = owner
            effects += _ask_for(state, child, event.sent_ns, now)
    hurry_for(state, event.lease_seconds)
    return effects


def _ask_for(state: MasterState, child: Child, renewed_ns: int, now: float) -> list[Effect]:
    zygote, settings = _zygote_of(state, child), state.settings_of(child)
    if zygote is None or settings is None:
        why = "its zygote or its pool went before it could be asked for"
        return dying.not_started(state, child, why, now, from_outside=True)
    child.move(ChildState.ASKED)
    child.asked_at = now
    child.asked_of = zygote.nonce
    child.lease_seconds = settings.settings.lease_seconds
    quiet = state.quiet.is_asked
    return [do.ForkWorker(zygote.ref, child.ref, child.owner, child.pool, settings.text, renewed_ns, quiet)]


def _zygote_of(state: MasterState, child: Child) -> Child | None:
    """The zygote that a worker is forked from, when it is READY."""
    generation = state.rollout.of(child.generation)
    zygotes = state.children.of(Role.ZYGOTE, ChildState.READY)
    return next((each for each in zygotes if generation is not None and each.generation == generation.code), None)


def started(state: MasterState, event: Started, now: float) -> list[Effect]:
    """A child has a process, or the kernel refused."""
    child = state.children.get(event.slot, event.nonce)
    if child is None:
        return []
    child.pid = event.pid
    return dying.not_started(state, child, event.error, now) if event.error else []


def stack_file_made(state: MasterState, event: StackFileMade, _now: float) -> list[Effect]:
    """A child can be asked for its stack."""
    child = state.children.get(event.slot, event.nonce)
    if child is not None:
        child.has_stack = True
    return []


def stop_seen(state: MasterState, event: StopSeen, now: float) -> list[Effect]:
    """A signal stopped a child, or it goes on."""
    child = state.children.get(event.slot, event.nonce)
    if child is not None:
        child.stopped_at = now if event.stopped else None
    return []


def _born(state: MasterState, event: messages.Spawned) -> list[Effect]:
    """A worker has a process. One that was to be killed before it had a number is killed now."""
    child = state.children.get(event.slot, event.nonce)
    if child is None or child.pid:
        return []
    child.pid = event.pid
    if child.state is ChildState.ASKED:
        child.move(ChildState.BOOTING)
    return [do.Tell(child.ref, do.Order.KILL)] if child.state is ChildState.KILLED else []


def zygote_said(state: MasterState, event: ZygoteSaid, now: float) -> list[Effect]:
    """A zygote or one of its intermediates has sent something."""
    number = event.generation
    match event.message:
        case messages.Spawned() as spawned:
            return _born(state, spawned)
        case messages.ForkFailed(slot, nonce, why):
            child = state.children.get(slot, nonce)
            return _not_born(state, child, why, now, from_outside=False) if child is not None else []
        case messages.Warned(text):
            return [do.warning(names.ZYGOTE_WARNING, generation=number, warning=text)]
        case messages.Ready(modules, objects):
            return [do.info(names.ZYGOTE_READY, generation=number, modules=modules, objects_frozen=objects)]
        case messages.ImportFailed(module, why, where):
            failed = do.error(names.ZYGOTE_FAILED, module=module, error=why, where=where)
            return [failed, *reloading.import_failed(state, number, module, f"{why} ({where})" if where else why, now)]
        case other:
            _note_code(state.code_of(number), other)
            return []


def _note_code(code: Code, message: messages.Message) -> None:
    match message:
        case messages.Importing(module):
            code.importing = module
        case messages.Imported(tasks):
            code.tasks.update(dict(tasks))
        case other:
            raise ValueError(f"a zygote sends no {type(other).__name__}")


def zygote_gone(state: MasterState, event: ZygoteGone, now: float) -> list[Effect]:
    """What it was asked for and nobody has reported will not come; nor can anything else be asked of it.

    Its channel may end before there is a zombie to wait for. Until then it must not count as READY, or the next plan
    would ask it for workers. One that is BOOTING still is asked for none: its exit code says why it leaves.
    """
    effects: list[Effect] = []
    zygote = state.children.get(event.slot, event.nonce)
    if zygote is not None and zygote.state is ChildState.READY:
        zygote.move(ChildState.KILLED)
        effects.append(do.Tell(zygote.ref, do.Order.KILL))
    for child in state.children.of(Role.WORKER):
        if child.asked_of == event.nonce:
            effects += _not_born(state, child, "its zygote died", now, from_outside=True)
    return effects


def _not_born(state: MasterState, child: Child, why: str, now: float, *, from_outside: bool) -> list[Effect]:
    """A worker that was asked for will not come. One that does, late, finds no place: to retire its owner may take as
    long as an outage of Redis."""
    if not child.is_unreported:
        return []
    return [do.FreeSlot(child.slot), *dying.not_started(state, child, why, now, from_outside=from_outside)]
