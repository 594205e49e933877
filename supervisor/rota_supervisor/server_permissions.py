"""What the user of a fleet must be allowed to run, and what of it the server's ACL forbids.

A permission that is missing shows when a command is first needed, which may be in the night, and a script that meets it
in its middle is not rolled back. So a master asks for all of them before it starts anything.
"""

import re
from typing import Final

from rota.protocol.keys import Keys
from rota.protocol.scripts import load_script, script_names
from rota.server.connection import Connection
from rota.server.durability import Durability

_OUTSIDE_SCRIPTS: Final = frozenset({"EVALSHA", "BLPOP", "SCAN", "INFO"})
_OF_DURABILITY: Final[dict[Durability, frozenset[str]]] = {
    "none": frozenset(),
    "wait": frozenset({"WAIT"}),
    "waitaof": frozenset({"WAITAOF"}),
}
_CALLED: Final = re.compile(rb"\b(?:redis\.)?(?:p?call|try)\('([A-Z]+)'")  # some have names of their own for them
# Whole commands, each argument a key that is allowed: asked about an EVALSHA that was too short, Redis 7.0 and Valkey
# 9 looked for its keys beyond its end, and crashed. A server without the question is not asked.
_ASK: Final = """#!lua flags=no-writes,allow-oom
local key, forbidden = KEYS[1], {}
local function allowed(command)
  if command == 'EVALSHA' then return redis.acl_check_cmd(command, '', '1', key) end
  return redis.acl_check_cmd(command, key, key, key, key)
end
for _, command in ipairs(redis.acl_check_cmd and ARGV or {}) do
  if not allowed(command) then forbidden[#forbidden + 1] = command end
end
return forbidden
"""


def needed_commands(durability: Durability, *, failover: bool) -> list[str]:
    """All that a fleet's connections and scripts run, but EVAL, without which nothing can be asked.

    `failover`: whether sentinels name the server, whose role is asked for at each connection.
    """
    called = {word.decode() for name in script_names() for word in _CALLED.findall(load_script(name).text)}
    role = {"ROLE"} if failover else set()
    return sorted(_OUTSIDE_SCRIPTS | _OF_DURABILITY[durability] | role | called)


def forbidden_commands(connection: Connection, namespace: str, needed: list[str]) -> list[str]:
    """Those of them that this connection's user may not run on a key of the namespace. Raises ServerError."""
    forbidden = connection.execute("EVAL", _ASK, 1, Keys(namespace).tasks, *needed)
    return [word.decode() for word in forbidden]


def faults_of_permissions(forbidden: list[str]) -> list[str]:
    """What to say of that; nothing when all is allowed."""
    if not forbidden:
        return []
    granted = " ".join(f"+{command.lower()}" for command in forbidden)
    return [f"its ACL forbids the user of redis_url to run {', '.join(forbidden)}: ACL SETUSER <user> {granted}"]
