"""The core of a master without its shell. A test sends events to the core and reads the effects."""

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from itertools import count
from typing import Any, TypeVar

from rota_supervisor.config.loader import Loaded
from rota_supervisor.config.model import Config
from rota_supervisor.control.port import ControlReply, RequestKind, ScaleOrder
from rota_supervisor.layout import Role
from rota_supervisor.master.core.children import Child, ChildState
from rota_supervisor.master.core.effects import Effect, Order, PrepareAddress, ReadConfiguration, Respond, WriteLog
from rota_supervisor.master.core.master_events import AddressPrepared, ConfigurationRead, Event, Requested
from rota_supervisor.master.core.plan import Action, Signal
from rota_supervisor.master.core.process_settings import Surroundings
from rota_supervisor.master.core.reasons import Reason
from rota_supervisor.master.core.state import MasterState
from rota_supervisor.master.core.take import take

E = TypeVar("E")


class PendingRequest:
    """A request to the master, and the responses to it so far."""

    def __init__(self) -> None:
        self.reply: ControlReply | None = None
        self.refused = ""

    def done(self) -> bool:
        return self.reply is not None

    def result(self) -> ControlReply:
        assert self.reply is not None, self.refused or "there is no reply yet"
        return self.reply


class Core:
    """A master's core, which a test drives. `state` is the core's state at the time `now`, and `effects` lists all
    effects so far. A reload reads the configuration `file`. `handlers` maps types of effects to the functions that
    carry them out. The default handlers act as if the configuration were valid and every listen address were free.
    """

    def __init__(self, config: Config) -> None:
        self.file = config
        self.now = 0.0
        self.state = MasterState.first(Surroundings("node", 7), Loaded(config, {}, ()), self.now)
        self.effects: list[Effect] = []
        self.handlers: dict[type, Callable[[Any], object]] = {
            ReadConfiguration: lambda effect: self.take(ConfigurationRead(effect.ticket, Loaded(self.file, {}, ()))),
            PrepareAddress: lambda effect: self.take(AddressPrepared(effect.ticket)),
            Respond: self._receive_reply,
        }
        self._tickets = count(1)
        self._pending: dict[int, PendingRequest] = {}

    def take(self, event: Event) -> list[Effect]:
        """Process an event and return its direct effects."""
        effects = take(self.state, event, self.now)
        self.carry_out(effects)
        return effects

    def carry_out(self, effects: list[Effect]) -> None:
        """Carry out the effects that have a handler."""
        self.effects += effects
        for effect in effects:
            self.handlers.get(type(effect), _nothing)(effect)

    def request(
        self, request: RequestKind, order: ScaleOrder | None = None, *, by_signal: bool = False
    ) -> PendingRequest:
        """Send a request to the core, and return it with its responses."""
        ticket = next(self._tickets)
        pending = self._pending[ticket] = PendingRequest()
        self.take(Requested(request, ticket, by_signal, order))
        return pending

    def _receive_reply(self, effect: Respond) -> None:
        pending = self._pending[effect.ticket]
        pending.refused = effect.refused
        pending.reply = effect.reply

    def child(
        self, role: Role, slot: int, pool: str = "default", generation: int = 1, state: ChildState = ChildState.READY
    ) -> Child:
        """Add a child in this state to the fleet, and return it."""
        child = self.state.children.add(role, pool, generation, slot, self.now)
        child.state = state
        return child

    def done(self, kind: type[E]) -> list[E]:
        """Return all effects of one type that the core has returned so far."""
        return [effect for effect in self.effects if isinstance(effect, kind)]

    @property
    def logged(self) -> list[tuple[str, Mapping[str, Any]]]:
        """Return the logged events with their fields."""
        return [(effect.event, effect.fields) for effect in self.done(WriteLog)]


def picture(state: MasterState) -> dict[str, object]:
    """Return a copy of the whole state, as values that can be compared."""
    held = {each.name: getattr(state, each.name) for each in fields(state)}
    return copy.deepcopy(held | {"children": list(state.children)})


def drain(slot: int, reason: Reason) -> Signal:
    """Return the action by which the core orders the child in this slot to drain."""
    return Signal(slot, Order.LEAVE, reason)


def kill(slot: int, reason: Reason) -> Signal:
    """Return the action by which the core kills the child in this slot."""
    return Signal(slot, Order.KILL, reason)


def of_order(order: Order, actions: Iterable[Action]) -> list[Signal]:
    """Return those of the actions that send this order to a child."""
    return [action for action in actions if isinstance(action, Signal) and action.order is order]


def _nothing(_: Any) -> None:
    pass
