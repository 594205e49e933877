"""Measures how much server time a claim takes, depending on the number of queues in the tier that have work. The queues
are either named in the tier or match a pattern.

There is no fleet. A single connection makes the calls of a worker (turns), each of which settles the task that the
previous turn claimed. The server itself reports the time of the script, so the time includes nothing else. Each turn
claims only one task, so 10,000 queues with a few tasks each have work until the end.
"""

from collections.abc import Sequence

from benchmarks.testbed import Testbed
from rota.protocol.new_tasks import NewTask
from rota.protocol.nodes import Announced
from rota.protocol.outcome import Done, Settlement, join_settlements, pack_settlement
from rota.protocol.store import BATCH, Store
from rota.protocol.tiers import Domain, QueueShare, domain_of, pack_tiers
from rota.protocol.turns import Claim, Turn
from rota.server.address import parse_address
from rota.server.connection import Connection

PATTERN = "tenant-*"
_LEASE_MS = 600_000
_CHUNKS = 5
_TURNS = 400  # the number of turns in a chunk


class _Worker:
    """The only worker in the namespace. Each of its turns claims one task."""

    def __init__(self, testbed: Testbed, domain: Domain) -> None:
        self._testbed = testbed
        self._store = Store("claims")
        self._connection = Connection(parse_address(testbed.url))
        self._tiers = pack_tiers((domain,))
        with_patterns = Announced(domains=(domain,) if domain.has_patterns else ())
        self._connection.run(self._store.announce("node", b"{}", _LEASE_MS, (), with_patterns))
        self._owner = self._connection.run(self._store.register(_LEASE_MS, ["node:0"]))[0]
        self._held: Sequence[Claim] = ()

    def fill(self, queues: Sequence[str], each: int) -> None:
        names = [queue for queue in queues for _ in range(each)]
        tasks = [
            NewTask(f"t{at}", queue, f'["t{at}","{queue}","nothing",[]]'.encode()) for at, queue in enumerate(names)
        ]
        for at in range(0, len(tasks), BATCH):
            self._connection.run(self._store.enqueue(f"n{at}", tasks[at : at + BATCH]))

    def turn(self) -> None:
        settled = join_settlements([pack_settlement(Settlement(claim.entry, Done())) for claim in self._held])
        self._held = self._connection.run(
            self._store.turn(self._owner, self._tiers, Turn(1, settlements=settled))
        ).claims

    def microseconds_a_turn(self) -> float:
        """Return the mean time that the server reports for a turn."""
        self._testbed.client.config_resetstat()
        for _ in range(_TURNS):
            self.turn()
        told = self._testbed.client.info("commandstats")["cmdstat_evalsha"]
        return float(told["usec"] / told["calls"])

    def close(self) -> None:
        self._connection.close()


def microseconds_a_claim(testbed: Testbed, number: int, *, by_pattern: bool) -> list[float]:
    """Return the server time of a claim in microseconds, while `number` queues have work. There is one result for each
    of several chunks of turns.
    """
    testbed.clear()
    queues = [f"tenant-{at}" for at in range(number)]
    names = [PATTERN] if by_pattern else queues
    worker = _Worker(testbed, domain_of([QueueShare(name) for name in names]))
    turns = (_CHUNKS + 1) * _TURNS
    worker.fill(queues, 2 + 2 * turns // number)
    for _ in range(max(_TURNS, number // 40)):  # during the first turns, the scripts find the queues
        worker.turn()
    found = [worker.microseconds_a_turn() for _ in range(_CHUNKS)]
    worker.close()
    return found
