"""The actions of the operators of a fleet, one function for each. The actions come at random times, and some of them
are mistakes.
"""

from typing import Final

import msgspec

from rota_supervisor.config.model import LeaseConfig, PoolConfig
from simulation.nemesis import LEASES, Fault, Nemesis
from simulation.process import Code
from simulation.serving import draw_serving

BAD_CODES: Final = (Code.RAISES, Code.HANGS, Code.DIES, Code.WORKERS_DIE, Code.UNSERVED)


def reload_good(nemesis: Nemesis) -> None:
    _reload(nemesis, imports=(f"good.{nemesis.next_version()}",))


def reload_bad(nemesis: Nemesis) -> None:
    _reload(nemesis, imports=(f"{nemesis.random.choice(BAD_CODES)}.{nemesis.next_version()}",))


def reload_garbage(nemesis: Nemesis) -> None:
    nemesis.node().reload(None)


def reload_counts(nemesis: Nemesis) -> None:
    node = nemesis.node()
    config = node.file or node.state.config
    if config.pools:
        pools = {name: PoolConfig(workers=nemesis.random.choice([0, 1, 2, 3])) for name in ("a", "b", "c")}
        del pools[nemesis.random.choice(["a", "b", "c"])]
        node.reload(msgspec.structs.replace(config, pools=pools))
    else:
        node.reload(msgspec.structs.replace(config, workers=nemesis.random.choice([0, 1, 2, 3, 4])))


def reload_lease(nemesis: Nemesis) -> None:
    _reload(nemesis, lease=LeaseConfig(*nemesis.random.choice(LEASES)))


def reload_serving(nemesis: Nemesis) -> None:
    """Reload a node with randomly chosen patterns, conditions and schedules."""
    node = nemesis.node()
    node.reload(draw_serving(nemesis.random, node.file or node.state.config))


def reload_many(nemesis: Nemesis) -> None:
    for _ in range(nemesis.random.choice([3, 6, 12])):
        fault = nemesis.random.choice([reload_good, reload_good, reload_counts, reload_bad, reload_garbage])
        nemesis.later(nemesis.random.uniform(0, 2.0), fault)


def _reload(nemesis: Nemesis, **values: object) -> None:
    node = nemesis.node()
    node.reload(msgspec.structs.replace(node.file or node.state.config, **values))


def restart(nemesis: Nemesis) -> None:
    node = nemesis.node()
    node.reload(node.file, fresh=True)


def one_more(nemesis: Nemesis) -> None:
    nemesis.node().adjust(1)


def one_less(nemesis: Nemesis) -> None:
    nemesis.node().adjust(-1)


def fewer_and_fewer(nemesis: Nemesis) -> None:
    node = nemesis.node()
    for _ in range(4):
        node.adjust(-1)


def quiet_for_a_while(nemesis: Nemesis) -> None:
    node = nemesis.node()
    node.quiet(on=True)
    nemesis.after(nemesis.spell(), lambda: node.quiet(on=False))


ORDERS: Final[tuple[Fault, ...]] = (
    reload_good,
    reload_good,
    reload_bad,
    reload_garbage,
    reload_counts,
    reload_counts,
    reload_lease,
    reload_serving,
    reload_serving,
    reload_many,
    restart,
    one_more,
    one_less,
    fewer_and_fewer,
    quiet_for_a_while,
    quiet_for_a_while,
)
