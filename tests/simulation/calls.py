"""The boundary between the product's code and the simulated server. The store returns calls, and a simulated connection
executes these calls on the model of the server.
"""

import asyncio
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from rota.child.child_process import boottime_seconds
from rota.poller.poller_report import PollerReport
from rota.protocol.nodes import NOTHING_ANNOUNCED, Announced, AnnounceReply
from rota.protocol.replies import Reaped, Renewed, Swept
from rota.protocol.schedule_store import DeclaredSchedule, DeclareStatus, RemoveStatus, ScheduleStore
from rota.protocol.scripts import Script, ScriptCall
from rota.protocol.store import Blame, Store
from rota.protocol.tiers import NO_TIERS, QueueCondition
from rota.protocol.views import ClosedQueue
from rota.protocol.wire import NOTHING, Packed
from rota.server.aio_connection import AioConnection
from rota.server.connection import Connection
from rota.server.server_errors import ConnectionLost, PushedBack, Refused, ServerError
from simulation.network import Caller, Network
from simulation.server import MICROSECONDS, Server

T = TypeVar("T")
_NO_SCRIPT: Final = Script("", b"", b"")
GIVEN_BACK: Final = Reaped(False, 0, (), ())
STILL_ALIVE: Final = Reaped(True, 0, (), ())


@dataclass(frozen=True, slots=True)
class Call(ScriptCall[T]):
    """A command that the model of the server executes instead of a script."""

    execute: Callable[[Server], T]


def _call(execute: Callable[[Server], T]) -> Call[T]:
    return Call(_NO_SCRIPT, (), NOTHING, _parse_nothing, execute)


def _parse_nothing(raw: Any) -> Any:
    raise AssertionError(f"no server was called, and yet it replied {raw!r}")


def _outcomes_in(settlements: Packed) -> dict[str, str]:
    """Return the verb of each outcome, by task id. Each settlement has four arguments, and the first two are the entry
    and the verb.
    """
    texts = settlements.data.decode().split("\r\n")[1::2]
    return {entry.partition(" ")[0]: verb for entry, verb in zip(texts[::4], texts[1::4], strict=True)}


class Calls(Store):
    """The transitions that masters and pollers request, as calls to the model of the server."""

    def register(self, lease_ms: int, node_slots: Sequence[str]) -> ScriptCall[tuple[str, ...]]:
        return _call(lambda server: tuple(server.register(lease_ms, list(node_slots))))

    def renew(self, lease_ms: int, owners: Sequence[str]) -> ScriptCall[Renewed]:
        return _call(lambda server: Renewed(*server.renew(lease_ms, owners)))

    def reap_exited(
        self,
        owner: str,
        blame: Blame,
        settlements: Packed = NOTHING,
        tiers: Packed = NO_TIERS,  # noqa: ARG002 - the signature is the product's
    ) -> ScriptCall[Reaped]:
        def execute(server: Server) -> Reaped:
            blamed = {task_id: record for task_id, record in blame.ran if record and blame.crash is not None}
            server.reap_exited(owner, blamed, blame.crash_limit, _outcomes_in(settlements))
            return GIVEN_BACK

        return _call(execute)

    def reap_expired(self, owner: str, blame: Blame) -> ScriptCall[Reaped]:  # noqa: ARG002 - the signature is the product's
        return _call(lambda server: GIVEN_BACK if server.reap_expired(owner) else STILL_ALIVE)

    def sweep(
        self,
        lease_ms: int,
        poller: str = "",  # noqa: ARG002 - the signature is the product's
        forget_seconds: float = 0.0,  # noqa: ARG002
    ) -> ScriptCall[Swept]:
        return _call(lambda server: Swept(server.now_us, 0, 0, tuple(server.sweep(lease_ms)), None))

    def announce(
        self,
        node: str,
        heartbeat: bytes,  # noqa: ARG002 - as above
        ttl_ms: int,
        queues: Sequence[str],  # noqa: ARG002
        announced: Announced = NOTHING_ANNOUNCED,
    ) -> ScriptCall[AnnounceReply]:
        def execute(server: Server) -> AnnounceReply:
            nodes = server.announced.announce(server.now_us, node, server.now_us + ttl_ms * 1000, announced)
            return AnnounceReply(nodes, any_closed=True)

        return _call(execute)

    def check_conditions(
        self, ttl_ms: int, conditions: Iterable[QueueCondition] = ()
    ) -> ScriptCall[tuple[ClosedQueue, ...]]:
        def execute(server: Server) -> tuple[ClosedQueue, ...]:
            return server.announced.check_conditions(server.now_us, server.now_us + ttl_ms * 1000, conditions)

        return _call(execute)


class ScheduleCalls(ScheduleStore):
    """The schedule operations that masters and pollers request, as calls to the model of the server."""

    def declare(self, ttl_ms: int, declared: Sequence[DeclaredSchedule]) -> ScriptCall[list[DeclareStatus]]:
        return _call(lambda server: [server.declare(ttl_ms, *each) for each in declared])

    def forget(self, name: str, patience_us: int) -> ScriptCall[RemoveStatus]:
        return _call(lambda server: server.forget(name, patience_us))


CALLS: Final = Calls("simulated")
SCHEDULE_CALLS: Final = ScheduleCalls("simulated")


class MasterConnection(AioConnection):
    """The master's connection, which uses the simulated network."""

    def __init__(self, caller: Caller, network: Network, server: Server) -> None:
        self._caller = caller
        self._network = network
        self._server = server
        # `inf` means that the master is waiting for no reply; the master reads this attribute of its real connection.
        self.silent_since = math.inf

    async def execute(self, *args: object, seconds: float | None = None) -> Any:  # noqa: ARG002 - as above
        """Return the current time of the server's clock. TIME is the only command that a master sends without a
        script.
        """
        assert args == ("TIME",), args
        return await self.run(_call(lambda server: divmod(server.now_us, MICROSECONDS)))

    async def run(self, command: ScriptCall[T]) -> T:
        assert isinstance(command, Call)
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def receive(reply: T | ServerError) -> None:
            if future.cancelled():
                return
            if isinstance(reply, ServerError):
                future.set_exception(reply)
            else:
                self.silent_since = math.inf
                future.set_result(reply)

        self.silent_since = min(self.silent_since, boottime_seconds())
        self._network.call(self._caller, lambda _: command.execute(self._server), receive)
        return await future


class PollerConnection(Connection):
    """A poller's connection during one step that has reached the server. If `reply_arrives` is False, the calls are
    executed, but their replies are lost.
    """

    def __init__(self, server: Server, *, reply_arrives: bool) -> None:
        self._server = server
        self._reply_arrives = reply_arrives

    def run(self, command: ScriptCall[T], seconds: float = 0.0) -> T:  # noqa: ARG002 - the signature is the product's
        assert isinstance(command, Call)
        reply: T = command.execute(self._server)
        if not self._reply_arrives:
            raise ConnectionLost("the reply is lost", "silent")
        return reply


class SilentReport(PollerReport):
    """A poller's report that raises refusals and discards everything else that is reported."""

    def __init__(self) -> None:
        pass

    def swept(self, swept: Swept) -> None:
        pass

    def reaped(self, owner: str, reaped: Reaped) -> None:
        pass

    def refused(self, error: Refused | PushedBack, call: str, owner: str = "") -> None:  # noqa: ARG002 - the signature is the product's
        raise error
