"""The blocking connection to the server for commands and a starting master, and the check that the server is fit for a
fleet.

A master checks all permissions before it starts any process. Otherwise a missing permission would be noticed only when
a command is first needed, perhaps at night, and perhaps in the middle of a script, which the server would not roll
back. The functions that judge the reply to INFO are pure. All problems with the server are reported in the same way.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from rota.display_text import redact
from rota.protocol.keys import PROTOCOL_VERSION, Keys
from rota.protocol.store import Store
from rota.protocol.transfers import UNFINISHED
from rota.protocol.wire import shown, text_of
from rota.server.address import ServerAccess, TlsFiles, Topology, address_of, address_with
from rota.server.connection import Connection, ConnectionOptions, connect
from rota.server.logins import LoginUnknown, ProviderFault
from rota.server.server_errors import (
    REASON_CLUSTER,
    REASON_MOVED,
    REASON_PROTOCOL,
    REASON_SENTINEL,
    ConnectionLost,
    PushedBack,
    Refused,
    ServerError,
    TlsFault,
    TlsFilesFault,
    first_sentence,
)
from rota.server.session import Durability
from rota_supervisor.acl_roles import AclRole, commands_of_adoption, needed_commands
from rota_supervisor.config.model import Config
from rota_supervisor.config.resolution import server_settings
from rota_supervisor.exits import ExitCode, Failure

OLDEST_REDIS: Final = (7, 0)
OLDEST_VALKEY: Final = (7, 2)
OLDEST_REDIS_WITH_WAITAOF: Final = (7, 2)
OLDEST_REDIS_WITH_TRUE_WAITAOF: Final = (8, 0)
SAFE_POLICY: Final = "noeviction"

OPTIONS: Final = ConnectionOptions(name="rota-cli")
_VERSION_FIELD: Final = "protocol"
_NO_PERMISSION: Final = "noperm"
_NO_DATABASE: Final = "DB index is out of range"
_NO_FIELD: Final = ""
_EVAL: Final = "EVAL"
# Commands that the check does not find forbidden even if the user may use no keys. These commands take no key, or the
# check finds no key in the arguments that it passes.
_WITHOUT_KEYS: Final = frozenset({"INFO", "ROLE", "SCAN", "TIME", "WAIT", "WAITAOF", "ZUNIONSTORE"})
# The check passes whole commands in which each argument is a permitted key. If an EVALSHA is too short, Redis 7.0 and
# Valkey 9 read keys beyond its end, and crash. If a server does not have the function `acl_check_cmd`, its permissions
# are not checked.
_ACL_SCRIPT: Final = """#!lua flags=no-writes,allow-oom
local key, forbidden = table.remove(ARGV, 1), {}
local function allowed(command)
  if command == 'EVALSHA' then return redis.acl_check_cmd(command, '', '1', key) end
  return redis.acl_check_cmd(command, key, key, key, key)
end
for _, command in ipairs(redis.acl_check_cmd and ARGV or {}) do
  if not allowed(command) then forbidden[#forbidden + 1] = command end
end
return forbidden
"""


class ServerVersion(NamedTuple):
    """The product and the release of a server, for example `Valkey` and `9.1.0`."""

    product: str
    release: str

    def __str__(self) -> str:
        return f"{self.product} {self.release}"


def parse_info(text: str) -> dict[str, str]:
    """Return the fields of a reply to INFO."""
    lines = (line.partition(":") for line in text.splitlines() if not line.startswith("#"))
    return {key: value.strip() for key, separator, value in lines if separator}


def version_of(info: Mapping[str, str]) -> ServerVersion:
    """Return the product and the release of the server. Valkey is recognized by its own field, because it also reports
    a Redis release with which it is compatible."""
    if "valkey_version" in info:
        return ServerVersion("Valkey", info["valkey_version"])
    product = info.get("server_name", "redis").capitalize()
    return ServerVersion(product, info.get("redis_version", "unknown"))


def faults_of_server(info: Mapping[str, str]) -> list[str]:
    """Return the reasons why the server is not fit for a fleet, each with a remedy."""
    version = version_of(info)
    faults = []
    if _numbers(version.release) < (OLDEST_VALKEY if version.product == "Valkey" else OLDEST_REDIS):
        faults.append(
            f"the server is {version}, which is too old: Rota needs Redis 7.0 or later, or Valkey 7.2 or later"
        )
    return faults + faults_of_eviction(info)


def faults_of_eviction(info: Mapping[str, str]) -> list[str]:
    """Return a fault if the server drops keys when its memory is full."""
    policy = eviction_policy_of(info)
    if policy == SAFE_POLICY:
        return []
    what = f"the server drops keys when its memory is full (maxmemory-policy {policy}), and tasks with them"
    return [f"{what}: set maxmemory-policy {SAFE_POLICY} in its configuration"]


def eviction_policy_of(info: Mapping[str, str]) -> str:
    """Return the server's `maxmemory-policy`, which applies when its memory is full."""
    return info.get("maxmemory_policy", SAFE_POLICY)


def faults_of_durability(info: Mapping[str, str], durability: Durability) -> list[str]:
    """Return the reasons why the server can never give the confirmations that `durability` requires."""
    version = version_of(info)
    if durability != "waitaof":
        return []
    if version.product != "Valkey" and _numbers(version.release) < OLDEST_REDIS_WITH_WAITAOF:
        needs = "Redis or Valkey 7.2 or later"
        return [f'the server is {version}, but durability = "waitaof" needs {needs}: upgrade it, or use "wait"']
    if info.get("aof_enabled") != "1":
        return ['durability = "waitaof" needs an append-only file, but the server writes none: set appendonly yes']
    if info.get("appendfsync") == "no":
        return ['durability = "waitaof" waits for syncs, but the server never syncs its file: set appendfsync always']
    return []


def faults_of_adoption(info: Mapping[str, str], namespace: str, adopted: Iterable[str]) -> list[str]:
    """Return a fault for each legacy list that the fleet could not adopt from, because the list may be in another
    hash slot of a cluster than the fleet's keys. A script cannot access two hash slots."""
    if not is_in_cluster(info):
        return []
    elsewhere = [key for key in adopted if f"{{{namespace}}}" not in key]
    needs = f"legacy lists must have the hash tag {{{namespace}}}, for example {{{namespace}}}queue:email"
    todo = "rename the list, or use a single server"
    return [f'the server is a cluster, where {needs}. "{key}" has no such tag: {todo}' for key in elsewhere]


def warnings_of_durability(info: Mapping[str, str], durability: Durability, *, failover: bool) -> list[str]:
    """Return the reasons why the server cannot confirm writes for now, or why its confirmations are not reliable."""
    version = version_of(info)
    warnings = []
    awaited = durability == "wait" or (durability == "waitaof" and failover)
    if awaited and info.get("connected_slaves", "0") == "0":
        has = "but the server has no replica: until one connects, enqueues are uncertain"
        warnings.append(f'durability = "{durability}", {has}')
    # Observed with Valkey 9.1: WAITAOF reports data as synced as soon as it has been written, before the next sync.
    # Redis 8.0 has fixed this.
    is_fixed = version.product != "Valkey" and _numbers(version.release) >= OLDEST_REDIS_WITH_TRUE_WAITAOF
    if durability == "waitaof" and info.get("appendfsync") == "everysec" and not is_fixed:
        what = f"{version} confirms writes up to a second before they are on its disk"
        warnings.append(f'durability = "waitaof", but with appendfsync everysec, {what}: set appendfsync always')
    return warnings


def warnings_of_topology(info: Mapping[str, str], topology: Topology) -> list[str]:
    """Return a warning if redis_url names a single node of a cluster. The fleet would stop when another node takes
    over."""
    if topology is Topology.CLUSTER or not is_in_cluster(info):
        return []
    what = "the server is a node of a cluster, and the fleet stops working when another node takes over its hash slots"
    return [f"{what}: {_BEGIN_WITH_CLUSTER}"]


def is_in_cluster(info: Mapping[str, str]) -> bool:
    """Whether the server is a node of a cluster."""
    return info.get("redis_mode", info.get("server_mode")) == "cluster"


def warnings_of_memory(info: Mapping[str, str]) -> list[str]:
    """Return a warning if the server accepts no tasks because its memory is full."""
    used, limit = (int(info.get(key, 0)) for key in ("used_memory", "maxmemory"))
    if not limit or used < limit:
        return []
    return [f"the server uses all of its maxmemory ({limit} bytes), so no task can be enqueued: raise maxmemory"]


def _numbers(release: str) -> tuple[int, ...]:
    parts = release.split(".")[:2]
    return tuple(int(part) for part in parts) if all(part.isdigit() for part in parts) else (0,)


def fault_of_protocol(version: str, namespace: str) -> str | None:
    """Return why a namespace with this protocol version cannot be used, or None if it can."""
    if version == str(PROTOCOL_VERSION):
        return None
    if version == UNFINISHED:
        return (
            f"the namespace {namespace!r} is being imported: wait for `rota import`; if it was interrupted, run it "
            "again with the same file"
        )
    return (
        f"the namespace {namespace!r} has protocol {version}, but this version of Rota uses {PROTOCOL_VERSION}: "
        "run the version of Rota that created it, or choose another namespace"
    )


class CheckedServer(NamedTuple):
    """The version and the warnings of a server that is fit for a fleet."""

    version: ServerVersion
    warnings: list[str]


@contextlib.contextmanager
def connected(config: Config) -> Iterator[Connection]:
    """Yield a connection to the server for the duration of the block. Problems with the server raise Failure, with code
    69, or with 78 if the configuration is at fault."""
    try:
        connection = connect(address_of(server_settings(config)), OPTIONS)
        try:
            yield connection
        finally:
            connection.close()
    except LoginUnknown as error:
        code = ExitCode.CONFIG if isinstance(error, ProviderFault) else ExitCode.UNREACHABLE
        raise Failure(code, str(error)) from None
    except ServerError as error:
        if isinstance(error, TlsFilesFault):
            raise Failure(ExitCode.CONFIG, str(error)) from None
        raise Failure(ExitCode.UNREACHABLE, _unusable(config, error)) from None


def refusal_of_login(config: Config) -> str:
    """Try to connect with the user and the password in the URL. If the connection cannot be used, return what is wrong
    with the user, the password or the server. Otherwise return ""."""
    files = TlsFiles(config.redis_tls_ca, config.redis_tls_cert, config.redis_tls_key)
    try:
        connect(address_with(config.redis_url, ServerAccess(files), Keys(config.namespace).tasks), OPTIONS).close()
    except ServerError as error:
        return _unusable(config, error)
    return ""


def _unusable(config: Config, error: ServerError) -> str:
    setting = "redis_credentials" if config.redis_credentials else "redis_url"
    return f"Redis at {redact(config.redis_url)} {_what_is_wrong(error, setting)}"


_BEGIN_WITH_CLUSTER: Final = "begin redis_url with redis+cluster:// (or rediss+cluster://), and name several nodes"
_NO_CLUSTER: Final = "cluster support disabled"
_SET_ADDRESS: Final = "set redis_url (or ROTA_REDIS_URL) to the right address"
# The beginnings of the error messages for a connection that the server accepted and then ended, which shows that the
# server is running.
_ENDED: Final = ("the connection broke", "the server closed the connection")
# For each kind of error, the text that describes what is wrong with the server, and what to do.
_WHAT_IS_WRONG: Final = {
    REASON_SENTINEL: (
        "cannot be found: {error}: check that the sentinels and servers are running, and that redis_url names them "
        "correctly"
    ),
    REASON_CLUSTER: (
        "cannot be used: {error}: check that the nodes are running, that CLUSTER INFO reports cluster_state:ok, and "
        "that redis_url names nodes of this cluster"
    ),
    REASON_MOVED: f"is a node of a cluster, and another node has the hash slot of the namespace: {_BEGIN_WITH_CLUSTER}",
    REASON_PROTOCOL: f"does not reply like a Redis server: {{error}}: {_SET_ADDRESS}",
    "readonly": "is a replica and accepts no writes: set redis_url (or ROTA_REDIS_URL) to the primary",
    "misconf": "refuses writes: {error}: fix the cause that the server's log shows, such as a full disk or a missing "
    "folder",
    "noauth": (
        "needs a password, but redis_url contains none: write redis://:PASSWORD@HOST:PORT/0, with the user before the "
        "colon if there is one, or set redis_url_file to a file with such a URL"
    ),
    **dict.fromkeys(
        (_NO_PERMISSION, "wrongpass"),
        "cannot be used: {error}: check the user and the password in {credentials_in}, and the permissions "
        "(ACL) of that user on the server",
    ),
}


def _what_is_wrong(error: ServerError, credentials_in: str) -> str:
    if error.reason in _WHAT_IS_WRONG:
        return _WHAT_IS_WRONG[error.reason].format(error=first_sentence(str(error)), credentials_in=credentials_in)
    if _NO_CLUSTER in str(error):
        return "is not a node of a cluster: begin redis_url with redis:// (or rediss://)"
    if _NO_DATABASE in str(error):
        return (
            f"has no such database: {error}: use a lower number, usually 0 to 15, or raise `databases` in the "
            "configuration of the server"
        )
    if isinstance(error, ConnectionLost) and not isinstance(error, TlsFault):
        has_ended = str(error).startswith(_ENDED)
        see = "see the server's log, begin redis_url with rediss:// if the server requires TLS"
        return f"is not reachable: {error}: {see if has_ended else 'start the server'}, or {_SET_ADDRESS}"
    if isinstance(error, PushedBack):
        return f"refuses commands for now ({error}): try again when the server has recovered"
    return f"cannot be used: {error}"


class ServerSurvey(NamedTuple):
    """The reply of a server to INFO, and the results of the checks."""

    info: dict[str, str]  # the INFO fields of the server
    faults: list[str]
    warnings: list[str]


def check_server(config: Config, *, open_namespace: bool) -> CheckedServer:
    """Check that the server is reachable and fit for a fleet, and return its version and warnings.

    With `open_namespace`, record the protocol version of this package in a new namespace. Raises Failure with code 69
    or 78.
    """
    with connected(config) as connection:
        found = survey_server(connection, config, open_namespace=open_namespace)
    if found.faults:
        where = redact(config.redis_url)
        raise Failure(ExitCode.CONFIG, *(f"Redis at {where}: {fault}" for fault in found.faults))
    return CheckedServer(version_of(found.info), found.warnings)


def survey_server(connection: Connection, config: Config, *, open_namespace: bool) -> ServerSurvey:
    """Make the checks of `check_server` over an open connection, and return the results. Raises ServerError."""
    # The configured address, because the connection may have the address of the primary that a sentinel named.
    address = address_of(server_settings(config))
    info = _information(connection, config)
    faults = [
        *faults_of_server(info),
        *faults_of_durability(info, config.durability),
        *faults_of_adoption(info, config.namespace, config.adopt),
    ]
    # This is checked before any script runs, because an old server cannot read even the first line of a script.
    if not faults:
        needed = needed_commands(AclRole.FLEET, config.durability, address.topology)
        key = Keys(config.namespace).tasks
        user = address.login().user or "default"
        faults = faults_of_permissions(
            forbidden_commands(connection, key, needed), user=user, namespace=config.namespace
        )
        faults += _faults_of_adoption(connection, config)
    if not faults:
        faults = _faults_of_namespace(connection, config.namespace, open_namespace=open_namespace)
    warnings = [
        *warnings_of_memory(info),
        *warnings_of_topology(info, address.topology),
        *warnings_of_durability(info, config.durability, failover=address.has_failover),
    ]
    return ServerSurvey(info, faults, warnings)


def _information(connection: Connection, config: Config) -> dict[str, str]:
    """Return the server's INFO fields. If the user may not call INFO, return only the version that the server is
    assumed to have. A later check then reports the missing permission. Raises ServerError."""
    try:
        info = parse_info(connection.execute("INFO").decode(errors="replace"))
    except Refused as error:
        if error.reason != _NO_PERMISSION:
            raise
        return {"redis_version": ".".join(map(str, OLDEST_REDIS))}
    return info | (_policy_of_syncs(connection) if config.durability == "waitaof" else {})


def _policy_of_syncs(connection: Connection) -> dict[str, str]:
    # INFO does not contain the policy (appendfsync), and hosting providers may forbid CONFIG.
    with contextlib.suppress(Refused):
        reply = [word.decode() for word in connection.execute("CONFIG", "GET", "appendfsync")]
        return dict(zip(reply[::2], reply[1::2], strict=True))
    return {}


def _faults_of_namespace(connection: Connection, namespace: str, *, open_namespace: bool) -> list[str]:
    if open_namespace:
        version = connection.run(Store(namespace).open())
    else:
        meta = Keys(namespace).meta
        connection.execute("HDEL", meta, _NO_FIELD)  # changes nothing, but fails if the server refuses writes
        version = text_of(connection.execute("HGET", meta, _VERSION_FIELD) or PROTOCOL_VERSION)
    fault = fault_of_protocol(shown(version), namespace)
    return [fault] if fault else []


# Permissions


def forbidden_commands(connection: Connection, key: str, needed: list[str]) -> list[str]:
    """Return the commands in `needed` that this connection's user may not run on a key. If the user may not run EVAL,
    with which the check is made, return EVAL and all commands in `needed`. Raises ServerError."""
    try:
        return [word.decode() for word in connection.execute("EVAL", _ACL_SCRIPT, 0, key, *needed)]
    except Refused as error:
        if error.reason != _NO_PERMISSION:
            raise
        return [_EVAL, *needed]


def _faults_of_adoption(connection: Connection, config: Config) -> list[str]:
    needed = commands_of_adoption()
    found = ((key, forbidden_commands(connection, key, needed)) for key in config.adopt)
    return [fault for key, forbidden in found for fault in faults_of_permissions(forbidden, key)]


def faults_of_permissions(
    forbidden: list[str], source: str = "", *, user: str = "<user>", namespace: str = ""
) -> list[str]:
    """Return a list with one message that names the missing permissions and the command that grants them, or [] if
    `forbidden` is empty.

    `source`: the key of the legacy list on which the commands are needed, or "" if they are needed on the keys of
    `namespace`.
    """
    if not forbidden:
        return []
    forbids = f"its ACL forbids the user {user!r}"
    granted = " ".join(f"+{command.lower()}" for command in forbidden)
    grant = f"ACL SETUSER {user} {granted}" + (f" ~{source}" if source else "")
    if _EVAL in forbidden:  # Without EVAL, no other permission can be checked.
        return [f"{forbids} to run EVAL, which checks the other permissions. A fleet needs: {grant}"]
    if not source and not {*needed_commands(AclRole.FLEET, "none", Topology.SINGLE)} - {*forbidden} - _WITHOUT_KEYS:
        keys = f"{{{namespace}}}:*"
        return [f"{forbids} the keys {keys}: ACL SETUSER {user} ~{keys}"]
    what = ", ".join(forbidden) + (f' on "{source}", which [adopt] names' if source else "")
    return [f"{forbids} to run {what}: {grant}"]
