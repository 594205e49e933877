"""Whether a server is fit for a fleet: pure judgments on its answer to INFO."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rota.protocol.keys import PROTOCOL_VERSION

OLDEST_REDIS: Final = (7, 0)
OLDEST_VALKEY: Final = (7, 2)
SAFE_POLICY: Final = "noeviction"


@dataclass(frozen=True, slots=True)
class ServerVersion:
    """What a server is and which release of it, as in `Valkey` and `9.1.0`."""

    product: str
    release: str

    def __str__(self) -> str:
        return f"{self.product} {self.release}"


def parse_info(text: str) -> dict[str, str]:
    """The fields of INFO's answer."""
    lines = (line.partition(":") for line in text.splitlines() if not line.startswith("#"))
    return {key: value.strip() for key, separator, value in lines if separator}


def version_of(info: Mapping[str, str]) -> ServerVersion:
    """The product and its release; Valkey also shows the Redis release it is compatible with."""
    if "valkey_version" in info:
        return ServerVersion("Valkey", info["valkey_version"])
    product = info.get("server_name", "redis").capitalize()
    return ServerVersion(product, info.get("redis_version", "unknown"))


def faults_of_server(info: Mapping[str, str]) -> list[str]:
    """Everything that makes the server unfit, each with what to do; none when it is fit."""
    return [*_faults_of_version(version_of(info)), *_faults_of_eviction(info)]


def _faults_of_version(version: ServerVersion) -> list[str]:
    oldest = OLDEST_VALKEY if version.product == "Valkey" else OLDEST_REDIS
    if _numbers(version.release) >= oldest:
        return []
    return [f"the server is {version}, too old: Rota needs Redis 7.0 or Valkey 7.2, or newer"]


def _numbers(release: str) -> tuple[int, ...]:
    parts = release.split(".")[:2]
    return tuple(int(part) for part in parts) if all(part.isdigit() for part in parts) else (0,)


def _faults_of_eviction(info: Mapping[str, str]) -> list[str]:
    policy = info.get("maxmemory_policy", SAFE_POLICY)
    if policy == SAFE_POLICY:
        return []
    what = f"the server drops keys when its memory is full (maxmemory-policy {policy}), and tasks with them"
    return [f"{what}: set maxmemory-policy {SAFE_POLICY} in its configuration"]


def fault_of_protocol(version: int, namespace: str) -> str | None:
    """What is wrong with the version of the protocol that a namespace has, or None."""
    if version == PROTOCOL_VERSION:
        return None
    return (
        f"the namespace {namespace!r} is used with protocol {version}, this version of Rota speaks {PROTOCOL_VERSION}: "
        "run the version of Rota that made it, or choose another namespace"
    )
