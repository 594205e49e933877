"""`PYTHONPATH=tests python -m benchmarks.groups`: measures what tasks cost that are members of a group or follow others
in a chain.

One connection enqueues 100,000 tasks, and claims and settles them 128 at a time, as a worker does. The server itself
reports the time of the scripts, so the time includes nothing else.
"""

import tempfile
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rota.protocol.groups import Into, Opening
from rota.protocol.new_tasks import NewMember, NewTask, follow_text
from rota.protocol.outcome import DONE, Settlement, plain_lines
from rota.protocol.store import BATCH
from rota.protocol.tiers import pack_limits
from rota.protocol.turns import Claim, Turn
from support.protocol import RUN_RECORD, Fleet, one_tier
from support.servers import Server, server_binaries

TASKS: Final = 100_000
TURN: Final = 128
TIER: Final = one_tier("q")


def new_task() -> NewTask:
    return NewTask(str(uuid.uuid4()), "q", b'["nothing",[]]')


def enqueue(fleet: Fleet, kind: str, *, is_last: bool) -> None:
    """Enqueue one full batch. Depending on `kind`, it consists of plain tasks, members of one group, or chains of two
    tasks.
    """
    tasks = [new_task() for _ in range(BATCH)]
    nonce = uuid.uuid4().hex
    if kind == "plain":
        fleet.run(fleet.store.enqueue(nonce, tasks))
    elif kind == "group":
        into = Into("g", Opening(follow_text([new_task()])), closes=is_last)
        fleet.run(fleet.store.add_members(nonce, list(map(NewMember, tasks)), into))
    else:
        fleet.run(fleet.store.add_members(nonce, [NewMember(task, follow_text([new_task()])) for task in tasks]))


def drain(fleet: Fleet) -> int:
    """Claim and settle all waiting tasks, and return their number."""
    owner = fleet.register(lease_ms=3_600_000)
    ended = 0
    claims = turn(fleet, owner, ())
    while claims:
        ended += len(claims)
        claims = turn(fleet, owner, claims)
    return ended


def turn(fleet: Fleet, owner: str, ended: Sequence[Claim]) -> Sequence[Claim]:
    plain = [plain_lines(Settlement(claim.entry, DONE, RUN_RECORD)) for claim in ended]
    return fleet.run(fleet.store.turn(owner, TIER, Turn(1, limits=pack_limits({"q": TURN}), plain=plain))).claims


def scripts_us(fleet: Fleet) -> int:
    """Return the time that the server has spent on scripts, in microseconds."""
    return int(fleet.redis.info("commandstats").get("cmdstat_evalsha", {}).get("usec", 0))


def measure(fleet: Fleet, kind: str) -> str:
    memory = int(fleet.redis.info("memory")["used_memory"])
    began = scripts_us(fleet)
    for first in range(0, TASKS, BATCH):
        enqueue(fleet, kind, is_last=first + BATCH >= TASKS)
    enqueued = scripts_us(fleet)
    bytes_each = (int(fleet.redis.info("memory")["used_memory"]) - memory) / TASKS
    ran = drain(fleet)
    to_enqueue = (enqueued - began) / TASKS
    to_end = (scripts_us(fleet) - enqueued) / ran
    return f"{kind}: {to_enqueue:.2f} us to enqueue, {bytes_each:.0f} bytes, {to_end:.2f} us to end each of {ran:,}"


def main() -> None:
    """Run the measurements, and print the results."""
    for name, binary in server_binaries().items():
        for kind in ("plain", "group", "chains"):
            with tempfile.TemporaryDirectory() as folder:
                server = Server(binary, Path(folder)).start()
                fleet = Fleet(server, "bench")
                print(name, measure(fleet, kind))
                fleet.close()
                server.stop()


if __name__ == "__main__":
    main()
