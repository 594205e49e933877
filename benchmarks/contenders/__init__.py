"""The contenders, by the names that `--only` takes. Which are there depends on what is installed."""

from benchmarks.contenders.classic import CLASSIC
from benchmarks.contenders.peers import PEERS
from benchmarks.contenders.pinging import PINGING
from benchmarks.contenders.raw import RAW
from benchmarks.contenders.rota import ROTA, ROTA_AT_ONCE, ROTA_FORGETTING, ROTA_LOGGING

OWN = (ROTA, ROTA_AT_ONCE, ROTA_FORGETTING, ROTA_LOGGING, CLASSIC, PINGING, RAW)
CONTENDERS = {one.name: one for one in (*OWN, *PEERS)}
