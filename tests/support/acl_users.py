"""The Redis users with which fleets and clients connect to test servers.

The users have exactly the permissions that `rota acl` grants, so a test fails if a permission that it needs is missing.
"""

from typing import Any, Final, cast

import redis

from rota.server.address import Topology
from rota_supervisor.acl_roles import AclRole, rules_of

PASSWORD: Final = "secret"
_NAMESPACES: Final = "*"  # any namespace
_ANY_KEY: Final = "*"  # matches every key, because the tests adopt items from keys with various names


def name_of(role: AclRole) -> str:
    """Return the name of the user with this role."""
    return f"of-{role}"


def user_lines() -> list[str]:
    """Return the lines of a server's configuration file that create a user for each role."""
    return [f"user {name_of(role)} on >{PASSWORD} {' '.join(rules_for(role))}" for role in AclRole]


def rules_for(role: AclRole) -> list[str]:
    """Return the rules for ACL SETUSER that grant this role in all namespaces, with sentinels and in a cluster."""
    of_each = (rules_of(role, _NAMESPACES, "wait", each, [_ANY_KEY]) for each in (Topology.SENTINEL, Topology.CLUSTER))
    return list(dict.fromkeys(rule for rules in of_each for rule in rules))


def as_user(url: str, role: AclRole) -> str:
    """Return the URL with the name and password of the role's user. A URL that already has a user or a password is
    returned unchanged.
    """
    scheme, separator, rest = url.partition("://")
    return url if "@" in rest else f"{scheme}{separator}{name_of(role)}:{PASSWORD}@{rest}"


def execute(client: "redis.Redis", *words: str) -> Any:
    """Run a command for which redis-py has no typed method."""
    return client.execute_command(*words)  # type: ignore[no-untyped-call]  # redis-py does not type it


def read_user(client: "redis.Redis", name: str) -> dict[str, Any]:
    """Return the server's description of a user, from `ACL GETUSER`."""
    return cast("dict[str, Any]", client.acl_getuser(name))
