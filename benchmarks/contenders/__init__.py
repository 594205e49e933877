"""The contenders, by the names that `--only` accepts. Only installed contenders are measured."""

from collections.abc import Collection

from benchmarks.contenders.classic import CLASSIC
from benchmarks.contenders.node import NODE_PEERS
from benchmarks.contenders.pinging import PINGING
from benchmarks.contenders.python import PYTHON_PEERS
from benchmarks.contenders.raw import RAW
from benchmarks.contenders.rota import ROTA, ROTA_AT_ONCE, ROTA_FORGETTING, ROTA_LOGGING
from benchmarks.contenders.ruby import RUBY_PEERS
from benchmarks.targets import Rivals

OWN = (ROTA, ROTA_AT_ONCE, ROTA_FORGETTING, ROTA_LOGGING, CLASSIC, PINGING, RAW)
PEERS = (*PYTHON_PEERS, *NODE_PEERS, *RUBY_PEERS)
CONTENDERS = {one.name: one for one in (*OWN, *PEERS)}


def rivals(names: Collection[str]) -> Rivals:
    """Return the other systems among these contenders: all of them, and separately those in Python that run a task
    again if its process dies.
    """
    return Rivals(
        every=[one.name for one in PEERS if one.name in names],
        python=[one.name for one in PYTHON_PEERS if one.at_least_once and one.name in names],
    )
