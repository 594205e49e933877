"""The transitions that only look, a part of the typed store: see `rota.protocol.store`."""

from collections.abc import Sequence

from rota.protocol import task_events, views
from rota.protocol.command import Command, Transitions
from rota.protocol.nodes import Node, parse_nodes
from rota.protocol.wire import NOTHING, pack


class Looks(Transitions):
    """What is asked about one namespace."""

    def overview(self, queues: Sequence[str], cursor: str = "0") -> Command[views.Overview]:
        """The numbers of up to BATCH named queues, and of a portion of all that are known; begin with cursor "0"."""
        return self._command("overview", pack((cursor, *queues)), views.parse_overview)

    def status(self, task_id: str, looked_at: int = 0) -> Command[views.TaskState]:
        """Where an id stands. Looks into its lanes only as far as BATCH entries from the head, and through the memory
        of ends for some milliseconds: `TaskState.looked_at` says where to go on."""
        return self._command("status", pack((task_id, looked_at)), views.parse_status)

    def wait(self, client: str, asked: Sequence[tuple[str, str]]) -> Command[list[views.TaskState | None]]:
        """What became of up to BATCH tasks, each (goal, id): `s` its start, `e` its end, `r` that and its result. None:
        it has not come yet, and the reply list of this client will tell. Those it had no room for are left out."""
        args = (word for question in asked for word in question)
        return self._command("wait", pack((client, *args)), views.parse_waited)

    def consumers(self) -> Command[views.Consumers]:
        """The consumers: at most BATCH of them."""
        return self._command("consumers", NOTHING, views.parse_consumers)

    def dead_page(self, offset: int, count: int) -> Command[views.DeadPage]:
        """A page of the dead set, latest first; `count` up to BATCH."""
        return self._command("dead", pack((offset, count)), views.parse_dead_page)

    def peek(self, place: str, queue: str, task: str, offset: int, count: int) -> Command[views.Peeked]:
        """A page of the tasks that are ready (in a queue), scheduled, running or dead; "" for every queue or task.
        Looks at `count`, up to BATCH; of those that run `offset` counts owners."""
        return self._command("peek", pack((place, queue, task, offset, count)), views.parse_peeked)

    def nodes(self) -> Command[list[Node]]:
        """The nodes whose masters live, or lived until a moment ago, at most BATCH of them."""
        return self._command("nodes", NOTHING, parse_nodes)

    def events(self, place: str, count: int) -> Command[task_events.EventsPage]:
        """Up to `count` task events behind a place: the id of one, "0" before all, "$" behind them; at most BATCH."""
        return self._command("events", pack((place, count)), task_events.parse_events)

    def audit(self) -> Command[views.Audit]:
        """The books of the namespace."""
        return self._command("audit", NOTHING, views.parse_audit)

    def lists(self) -> Command[views.Lists]:
        """The lists in which tasks stand."""
        return self._command("lists", NOTHING, views.parse_lists)

    def standing(self, lists: Sequence[str], read: int) -> Command[views.Standing]:
        """Up to BATCH ids that stand in these lists, behind the `read` ones at the tail of the first."""
        return self._command("standing", pack((read, *lists)), views.parse_standing)

    def bodies(self, cursor: str) -> Command[views.Bodies]:
        """A portion of the live tasks that are neither delayed nor dead; begin with cursor "0"."""
        return self._command("bodies", pack((cursor,)), views.parse_bodies)

    def unplaced(self, ids: Sequence[bytes]) -> Command[list[bytes]]:
        """Of up to BATCH ids those of live tasks that are not delayed, dead or in flight."""
        return self._command("unplaced", pack(ids), list)
