"""Known bugs, each with what has to catch it, and within how many seconds of a machine with two cores."""

from dataclasses import dataclass
from typing import Final

from mutations.catchers import Catcher, Soak, Tests
from mutations.tree import Replacement
from soak.findings import Wrong

_CALM: Final = Soak(24)  # with two bursts that fill the queues whose fairness is judged
# Each node is frozen for longer than its lease, while the other goes on.
_FROZEN: Final = Soak(28, ("stop_node a 5 8", "stop_node b 17 8"))
# The model test says the first answer or place that differs, whichever it is. It gets so many examples that what it can
# see it does see; most bugs fall among the first hundred.
_MODEL: Final = Tests(
    "tests/integration/protocol/test_model.py", "valkey", r"(?m)^E +(AssertionError: )?assert .*", examples=2000
)


@dataclass(frozen=True, slots=True)
class Mutation:
    """A bug, put into a copy of the product."""

    name: str
    replacements: tuple[Replacement, ...]
    catcher: Catcher
    budget_seconds: float


def _wrong(*kinds: Wrong) -> frozenset[Wrong]:
    return frozenset(kinds)


def _lua(name: str, old: str, new: str) -> Replacement:
    return Replacement(f"workers/rota/lua/{name}.lua", old, new)


MUTATIONS: Final = (
    Mutation(
        "owner check removed: who is not registered claims all the same",
        (
            _lua(
                "turn", "local registered = redis.call('ZSCORE', PREFIX .. 'owners', owner)", "local registered = true"
            ),
        ),
        _MODEL,
        60,
    ),
    Mutation(
        "client retries on: a connection sends a command again when no answer came in time",
        (
            Replacement(
                "workers/rota/server/connection.py",
                "        self.send(data)\n        return self.receive()\n",
                "        self.send(data)\n        try:\n            return self.receive()\n"
                "        except ConnectionLost:\n            self.send(data)\n            return self.receive()\n",
            ),
        ),
        Soak(16, ("server_sleep server 6 6.5",), _wrong(Wrong.DUPLICATED, Wrong.PHANTOM, Wrong.DIED)),
        90,
    ),
    Mutation(
        "no chain of doorbells: a token that a worker swallowed is not passed on",
        (_lua("turn", "    for _, queue in ipairs(tokens) do to_ring[queue] = true end\n", ""),),
        _MODEL,
        60,
    ),
    Mutation(
        "no allow-oom: a full server refuses the fleet's turns",
        (_lua("turn", "#!lua flags=allow-oom\n", "#!lua\n"),),
        Soak(14, ("fill_memory server 7 6",), _wrong(Wrong.WAITED)),
        90,
    ),
    Mutation(
        "no grace: whoever could not renew during an outage is retired after it",
        (_lua("sweep", "or now < last then grace = now + longest end", "or now < last then grace = 0 end"),),
        Soak(20, ("long_outage server 5 8", "refuse a 12 3.6"), _wrong(Wrong.LEASE, Wrong.DUPLICATED)),
        90,
    ),
    Mutation(
        "retired before waitpid: an owner's tasks are given back while its process still runs them",
        (
            Replacement(
                "supervisor/rota_supervisor/master/master.py",
                "                self._hands.ask_to_leave(child)\n",
                "                self._hands.ask_to_leave(child)\n                self._owners.retire_living(child)\n",
            ),
            Replacement(
                "supervisor/rota_supervisor/master/owners/owners.py",
                "    def free(self, child: Child) -> None:\n",
                "    def retire_living(self, child: Child) -> None:\n"
                "        if child.owner:\n"
                "            blame = Blame((), crash_limit=3, loss_limit=5)\n"
                "            obituary = Obituary(child.owner, '', blame, Packed(0, b''), NO_TIERS)\n"
                "            self._early = asyncio.ensure_future(self._leases.retire(obituary))\n\n"
                "    def free(self, child: Child) -> None:\n",
            ),
            Replacement(
                "supervisor/rota_supervisor/master/owners/owners.py",
                "from rota.telemetry import events, log\n",
                "from rota.protocol.store import Blame\nfrom rota.protocol.wire import Packed\n"
                "from rota.telemetry import events, log\nfrom rota_supervisor.master.children.told import NO_TIERS\n",
            ),
        ),
        Soak(20, ("term_node a 5 3", "term_node b 10 3", "term_node a 15 3"), _wrong(Wrong.DUPLICATED, Wrong.LEASE)),
        90,
    ),
    Mutation(
        "an ended task leaves the account of its last crash behind",
        (_lua("shared/ending", "if string.find(e.flag, '%u') then", "if false then"),),
        _MODEL,
        60,
    ),
    Mutation(
        "the in-flight gate of settle removed: outcomes count for whoever sends them",
        (_lua("shared/settle", "if i >= head and redis.call('LREM', inflight, 1, text) == 0 then", "if false then"),),
        Soak(
            _FROZEN.seconds,
            _FROZEN.faults,
            _wrong(Wrong.BOOKS, Wrong.LOST, Wrong.PHANTOM, Wrong.DUPLICATED, Wrong.LEFT),
        ),
        150,
    ),
    Mutation(
        "the fence is never up: a worker starts what it claimed though its lease may be lost",
        (
            Replacement(
                "workers/rota/child/fence.py",
                "return at_ns - self._slot.renewed_ns > self._allowed_ns",
                "return at_ns < 0",
            ),
        ),
        Soak(_FROZEN.seconds, _FROZEN.faults, _wrong(Wrong.DUPLICATED)),
        90,
    ),
    Mutation(
        "an enqueue that got no answer is sent again under another nonce",
        (
            Replacement(
                "workers/rota/sender.py",
                "        try:\n            answers = self._exchange(batches)\n",
                "        batches = [batch._replace(nonce=os.urandom(16).hex()) for batch in batches]\n"
                "        try:\n            answers = self._exchange(batches)\n",
            ),
        ),
        Soak(
            16,
            ("silence_replies producers 7 2.5", "silence_replies producers 12 2.5"),
            _wrong(Wrong.DUPLICATED, Wrong.PHANTOM),
        ),
        90,
    ),
    Mutation(
        "promoted 50 ms early",
        (_lua("promote", "local now, limit = redis_now(),", "local now, limit = redis_now() + 50000,"),),
        Soak(_CALM.seconds, (), _wrong(Wrong.EARLY)),
        60,
    ),
    Mutation(
        "the rotation is not charged: one queue is served again and again",
        (_lua("turn", "  charge(share, #texts)\n", ""),),
        Soak(_CALM.seconds, (), _wrong(Wrong.FAIRNESS)),
        60,
    ),
    Mutation(
        "a unique key is given to a second task while the first still lives",
        (
            _lua(
                "enqueue",
                "if holder and (accepted[holder] or call('HEXISTS', TASKS, holder) == 1) then word",
                "if holder and accepted[holder] then word",
            ),
        ),
        _MODEL,
        60,
    ),
    Mutation(
        "given back to the tail of the lane",
        (
            _lua(
                "shared/ending", "redis.call('LPUSH', lane, entry_text(e))", "redis.call('RPUSH', lane, entry_text(e))"
            ),
        ),
        _MODEL,
        60,
    ),
    Mutation(
        "a recall does not look whether the task it names still runs",
        (_lua("recall", "if not place then return 0 end", "place = place or 0"),),
        Tests("tests/integration/protocol/test_recall.py", "after_the_turn", r"assert before == after"),
        60,
    ),
    Mutation(
        "what a dead worker had finished is not read from its slot",
        (
            Replacement(
                "supervisor/rota_supervisor/master/owners/leases.py",
                "packed_in(*slot.outcomes())",
                "Packed(0, b'')",
            ),
        ),
        Tests("tests/e2e/test_claims_of_several.py", "no_finished_task_of_a_killed_worker", r"assert .*"),
        150,
    ),
)
