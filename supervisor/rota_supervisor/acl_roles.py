"""The permissions that Rota needs on a Redis server, as four roles. Each role is for one user of the server's ACL.

A role lists the scripts that its user runs and the commands that its connections send outside of scripts. The commands
inside of scripts are read from the scripts, so the role changes when a script changes. `rota acl` prints the rules of a
role, and a starting master checks that its user may run the commands of the role FLEET.

Redis checks the commands of a script against the permissions of the user that runs the script. A user could therefore
also send each of these commands without the script. All roles but the producer may access every key of the namespace.
The producer is the role of an application that is not trusted. It may use each command only on the keys on which the
script `enqueue` uses that command.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Final, NamedTuple

from rota.protocol.keys import Keys, prefix_of
from rota.protocol.scripts import read_script, script_names
from rota.server.address import Topology
from rota.server.session import Durability


class AclRole(StrEnum):
    """A role of a user on the server."""

    PRODUCER = "producer"  # an application that only enqueues
    FLEET = "fleet"  # masters, workers, pollers and exporters, and the tasks that they run
    OBSERVER = "observer"  # a person or a program that may read everything, including arguments and results
    OPERATOR = "operator"  # a person or a program that may do everything that `rota` and `rota.Client` can do


class Needs(NamedTuple):
    """The scripts and commands that a role needs."""

    scripts: frozenset[str]
    sent: frozenset[str]  # commands that connections send outside of scripts
    optional: frozenset[str]  # further commands that connections send, but without which they also work


@dataclass(frozen=True, slots=True)
class Access:
    """Commands that a role may use only on some keys. The keys are given without the prefix of the namespace."""

    commands: str
    keys: str


_WORD: Final = re.compile(rb"'([A-Z]{3,})'")
_COMMANDS_OF_SOURCES: Final = re.compile(rb"\bask\(source, '([A-Z]+)'")
# Words in scripts that look like commands but are options.
_OPTIONS: Final = frozenset(
    {"AGGREGATE", "BYSCORE", "COUNT", "LIMIT", "MAXLEN", "MIN", "NOVALUES", "WEIGHTS", "WITHSCORES"}
)
# The commands in scripts that change data. A test compares this set with the server's own list.
WRITES: Final = frozenset(
    {
        *("APPEND", "DEL", "HDEL", "HINCRBY", "HSET", "HSETNX", "INCR", "LPOP", "LPUSH", "LREM", "LSET", "LTRIM"),
        *("PEXPIRE", "RENAME", "RPUSH", "SADD", "SET", "SREM", "UNLINK", "XADD", "ZADD", "ZREM", "ZUNIONSTORE"),
    }
)
_READ_ONLY: Final = b"#!lua flags=no-writes"
_BACKUP: Final = frozenset(
    ["begin_import", "end_import", "export_list", "export_tasks", "import_keys", "import_tasks"]
)  # only `rota export` and `rota import` run these scripts

_ON_CONNECTING: Final = frozenset({"SELECT", "CLIENT|SETNAME"})
_OF_DURABILITY: Final[Mapping[Durability, frozenset[str]]] = {
    "none": frozenset(),
    "wait": frozenset({"WAIT"}),
    "waitaof": frozenset({"WAITAOF"}),
}
_RUNNING_SCRIPTS: Final = frozenset({"EVAL", "EVALSHA"})
# The commands of a search for the primary, by the way in which the URL names the server.
_OF_SEARCH: Final[Mapping[Topology, frozenset[str]]] = {
    Topology.SINGLE: frozenset(),
    Topology.SENTINEL: frozenset({"ROLE"}),
    Topology.CLUSTER: frozenset({"EXISTS"}),
}
# Further commands of the search, which are not checked: without them, there is no connection to check them on.
_TO_CONNECT: Final[Mapping[Topology, frozenset[str]]] = {
    Topology.SINGLE: frozenset(),
    Topology.SENTINEL: frozenset(),
    Topology.CLUSTER: frozenset({"CLUSTER|SLOTS"}),
}
_READING: Final = frozenset(
    {
        *("GET", "HGET", "HGETALL", "HLEN", "HSCAN", "INFO", "LATENCY|LATEST", "LLEN", "LRANGE", "PEXPIRETIME"),
        *("SCAN", "SSCAN", "TIME", "TYPE", "XREAD", "ZCARD", "ZRANGE", "ZSCAN"),
    }
)


PRODUCER_ACCESS: Final = (
    Access("HEXISTS HSTRLEN HSET", "tasks"),
    Access("LLEN RPUSH LPUSH", "queue:*"),
    Access("LLEN RPUSH", "doorbell doorbell:*"),
    Access("SISMEMBER SADD", "queues ready"),
    Access("HLEN HSET", "keys tickets"),
    Access("ZADD ZCOUNT", "delayed"),
    Access("GET SET", "unique:*"),
    Access("SET", "sent:*"),
    Access("HLEN HINCRBY", "counts totals"),
    Access("HGET HVALS HEXISTS", "served"),
    Access("EXISTS", "meta former events-on patterns"),
    Access("HLEN HGET HSET", "former"),
    Access("HLEN", "epitaphs"),
    Access("HVALS", "events-on"),
    Access("HGETALL", "patterns"),
    Access("XADD", "events"),
    Access("ZREM", "idle"),
    Access("ZADD", "turns:*"),
)
"""The commands and keys that a producer may use. A producer cannot read arguments or results, or delete anything."""


@cache
def _needs_of(role: AclRole) -> Needs:
    every = frozenset(script_names())
    match role:
        case AclRole.PRODUCER:
            return Needs(frozenset({"enqueue"}), frozenset(), _ON_CONNECTING)
        case AclRole.FLEET:
            # Commands that people run with the configuration of the fleet, such as `rota export`, need these
            # permissions.
            for_people = _READING.union(*map(commands_in, _BACKUP))
            sent = frozenset({"BLPOP", "BLMOVE", "SCAN", "ZSCAN", "INFO", "TIME"})
            return Needs(
                every - _BACKUP, sent, _ON_CONNECTING | for_people | {"CLIENT|CACHING", "CLIENT|ID", "CLIENT|TRACKING"}
            )
        case AclRole.OBSERVER:
            reading = frozenset(name for name in every if read_script(name).text.startswith(_READ_ONLY))
            return Needs(reading, _READING, _ON_CONNECTING)
        case AclRole.OPERATOR:
            return Needs(every, _READING | {"BLPOP", "LPOP", "UNLINK"}, _ON_CONNECTING)


def commands_in(script: str) -> frozenset[str]:
    """Return the commands that a script calls. If a script has the flag `no-writes`, commands that write are left out,
    because its text may contain such commands although it never calls them. An example is the text of `explain`."""
    text = read_script(script).text
    found = {word.decode() for word in _WORD.findall(text)} - _OPTIONS
    return frozenset(found - WRITES if text.startswith(_READ_ONLY) else found)


def needed_commands(role: AclRole, durability: Durability, topology: Topology) -> list[str]:
    """Return all commands without which a role does not work, except EVAL, which is used to check the others.

    With sentinels and in a cluster, each connection also runs the commands that search for the primary.
    """
    needs = _needs_of(role)
    in_scripts = frozenset[str]().union(*map(commands_in, needs.scripts))
    confirming = frozenset[str]() if role is AclRole.OBSERVER else _OF_DURABILITY[durability]
    return sorted({"EVALSHA"} | needs.sent | in_scripts | confirming | _OF_SEARCH[topology])


def rules_of(
    role: AclRole, namespace: str, durability: Durability, topology: Topology, adopted: Iterable[str] = ()
) -> list[str]:
    """Return the rules for ACL SETUSER that grant a role, without the leading `reset` and without a password.

    `adopted` has the keys of the legacy lists, outside of the namespace, from which a fleet adopts items.
    """
    prefix = prefix_of(Keys(namespace))
    needed = needed_commands(role, durability, topology)
    optional = _granted((_needs_of(role).optional | _TO_CONNECT[topology]).difference(needed))
    if role is AclRole.PRODUCER:
        everywhere = _RUNNING_SCRIPTS | _OF_DURABILITY[durability] | {"TIME"} | _OF_SEARCH[topology]
        selectors = [f"({_keys_of(each.keys, prefix)} {_granted(each.commands.split())})" for each in PRODUCER_ACCESS]
        return [f"~{prefix}tasks ~{prefix}absent", _granted(everywhere), optional, *selectors]
    sources = [f"(~{key} {_granted(commands_of_adoption())})" for key in adopted]
    return [f"~{prefix}*", _granted(["EVAL", *needed]), optional, *(sources if role is not AclRole.OBSERVER else ())]


def rules_on_sentinels() -> list[str]:
    """Return the rules for ACL SETUSER on a sentinel, without the leading `reset` and without a password. The rules are
    the same for all roles."""
    return [
        _granted(
            {"PING", "SENTINEL|CKQUORUM", "SENTINEL|GET-MASTER-ADDR-BY-NAME", "SENTINEL|MASTERS", *_ON_CONNECTING}
            - {"SELECT"}
        )
    ]


def commands_of_adoption() -> list[str]:
    """Return the commands that pollers run on the keys of legacy lists."""
    return sorted({word.decode() for word in _COMMANDS_OF_SOURCES.findall(read_script("adopt_legacy").text)})


def _granted(commands: Iterable[str]) -> str:
    return " ".join(f"+{command.lower()}" for command in sorted(commands))


def _keys_of(keys: str, prefix: str) -> str:
    return " ".join(f"~{prefix}{key}" for key in keys.split())
