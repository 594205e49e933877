"""Whether a server is fit for a fleet: pure judgments on its answer to INFO."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from rota.protocol.keys import PROTOCOL_VERSION
from rota.server.session import Durability

OLDEST_REDIS: Final = (7, 0)
OLDEST_VALKEY: Final = (7, 2)
OLDEST_REDIS_WITH_WAITAOF: Final = (7, 2)
OLDEST_REDIS_WITH_TRUE_WAITAOF: Final = (8, 0)
SAFE_POLICY: Final = "noeviction"


class ServerVersion(NamedTuple):
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
    version, policy, faults = version_of(info), eviction_policy_of(info), []
    if _numbers(version.release) < (OLDEST_VALKEY if version.product == "Valkey" else OLDEST_REDIS):
        faults.append(f"the server is {version}, too old: Rota needs Redis 7.0 or Valkey 7.2, or newer")
    if policy != SAFE_POLICY:
        what = f"the server drops keys when its memory is full (maxmemory-policy {policy}), and tasks with them"
        faults.append(f"{what}: set maxmemory-policy {SAFE_POLICY} in its configuration")
    return faults


def eviction_policy_of(info: Mapping[str, str]) -> str:
    """What the server does when its memory is full, in its own words."""
    return info.get("maxmemory_policy", SAFE_POLICY)


def faults_of_durability(info: Mapping[str, str], durability: Durability) -> list[str]:
    """What keeps the server from ever confirming what `durability` asks for."""
    version = version_of(info)
    if durability != "waitaof":
        return []
    if version.product != "Valkey" and _numbers(version.release) < OLDEST_REDIS_WITH_WAITAOF:
        needs = "Redis 7.2 or Valkey 7.2, or newer"
        return [f'the server is {version}, and durability = "waitaof" needs {needs}: use another, or "wait"']
    if info.get("aof_enabled") != "1":
        return ['the server writes no log to wait for, which durability = "waitaof" needs: set appendonly yes in it']
    if info.get("appendfsync") == "no":
        return ['the server never syncs its log, which durability = "waitaof" waits for: set appendfsync always in it']
    return []


def faults_of_adoption(info: Mapping[str, str], namespace: str, adopted: Iterable[str]) -> list[str]:
    """Classic queues that a cluster keeps on another shard than the fleet, or may: no script can reach both."""
    if info.get("redis_mode", info.get("server_mode")) != "cluster":
        return []
    elsewhere = [key for key in adopted if f"{{{namespace}}}" not in key]
    needs = f"a key that is adopted from must have the hash tag {{{namespace}}}, as {{{namespace}}}queue:email has"
    return [f'the server is a cluster, where {needs}, and "{key}" has not: use one server' for key in elsewhere]


def warnings_of_durability(info: Mapping[str, str], durability: Durability, *, failover: bool) -> list[str]:
    """What keeps the server from confirming now and may pass, or from confirming truly."""
    version, warnings = version_of(info), []
    awaited = durability == "wait" or (durability == "waitaof" and failover)
    if awaited and info.get("connected_slaves", "0") == "0":
        has = "and the server has no replica: until one connects, enqueues are uncertain"
        warnings.append(f'durability = "{durability}", {has}')
    # Seen with Valkey 9.1: between two syncs, WAITAOF takes what was written for synced. Redis mended that in 8.0.
    mended = version.product != "Valkey" and _numbers(version.release) >= OLDEST_REDIS_WITH_TRUE_WAITAOF
    if durability == "waitaof" and info.get("appendfsync") == "everysec" and not mended:
        what = f"{version} confirms up to a second before its disk has it"
        warnings.append(f'durability = "waitaof", and with appendfsync everysec {what}: set appendfsync always')
    return warnings


def _numbers(release: str) -> tuple[int, ...]:
    parts = release.split(".")[:2]
    return tuple(int(part) for part in parts) if all(part.isdigit() for part in parts) else (0,)


def fault_of_protocol(version: str, namespace: str) -> str | None:
    """What is wrong with the version of the protocol that a namespace has, or None."""
    if version == str(PROTOCOL_VERSION):
        return None
    return (
        f"the namespace {namespace!r} is used with protocol {version}, this version of Rota speaks {PROTOCOL_VERSION}: "
        "run the version of Rota that made it, or choose another namespace"
    )
