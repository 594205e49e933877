"""The roles of `rota acl`. The user of each role has exactly the permissions that the role needs. The other integration
tests and the end-to-end tests connect as these users too, so they fail if a permission is missing.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

import rota
from rota.protocol.scripts import script_names
from rota.protocol.task_states import State
from rota.server.address import Topology
from rota_supervisor.acl_roles import (
    PRODUCER_ACCESS,
    WRITES,
    AclRole,
    commands_in,
    commands_of_adoption,
    needed_commands,
    rules_of,
)
from support.acl_users import as_user, execute, name_of
from support.protocol import Fleet, one_tier
from support.servers import Server

_PATTERN_SETTINGS = " tenant-*=1 0 0 0"
_PAIRS = [
    (command, key) for access in PRODUCER_ACCESS for command in access.commands.split() for key in access.keys.split()
]


def flags_of(redis_client: "redis.Redis", command: str) -> set[str]:
    """Return the flags that the server lists for a command."""
    (info,) = execute(redis_client, "COMMAND", "INFO", command).values()
    return set(info["flags"])


def test_the_commands_known_as_writing_are_those_that_the_server_lists(redis_client: "redis.Redis") -> None:
    called = set().union(*map(commands_in, script_names())) | set(commands_of_adoption())
    assert {command for command in called if "write" in flags_of(redis_client, command)} == WRITES & called
    assert called >= WRITES


def test_an_observer_gets_no_writing_command(redis_client: "redis.Redis") -> None:
    for command in needed_commands(AclRole.OBSERVER, "wait", Topology.SENTINEL):
        assert "write" not in flags_of(redis_client, command), command


def test_every_rule_is_one_that_the_server_accepts(redis_client: "redis.Redis") -> None:
    for role in AclRole:
        words = " ".join(rules_of(role, "shop", "waitaof", Topology.SENTINEL, ["queue:mail"])).split()
        if b"waitaof" not in {name.encode() for name in redis_client.command()}:
            words = [word for word in words if word != "+waitaof"]
        assert execute(redis_client, "ACL", "SETUSER", "trial", "reset", "on", ">secret", *words)
    redis_client.acl_deluser("trial")


class Producer:
    """A user with the role of a producer, and all calls that a producer makes. A test can remove permissions from this
    user.
    """

    def __init__(self, fleet: Fleet, server: Server, redis_client: "redis.Redis") -> None:
        self._fleet = fleet
        self._admin = redis_client
        self._url = server.url
        self.namespace = fleet.keys.namespace
        self.user = f"producer-{self.namespace}"

    def allow(self, without: tuple[str, str] | None = None) -> None:
        """Give the user the permissions of a producer, except for one command on one key if `without` is given."""
        rules = " ".join(rules_of(AclRole.PRODUCER, self.namespace, "none", Topology.SINGLE))
        if without is not None:
            rules = reduced(rules, self.namespace, *without)
        execute(self._admin, "ACL", "SETUSER", self.user, "reset", "on", ">secret", *rules.split())

    def connect(self) -> rota.Client:
        return rota.Client(self._url.replace("//", f"//{self.user}:secret@"), self.namespace)

    def do_everything(self, round_: str) -> None:
        """Enqueue tasks in every way that the client offers. Raises rota.Unavailable if a necessary permission is
        missing.
        """
        admin, keys = self._admin, self._fleet.keys
        admin.hset(keys.meta, "protocol", "1")
        for key in (keys.served, keys.events_on, keys.patterns, keys.delayed, keys.poller_doorbell):
            admin.delete(key)
        with self.connect() as client:
            enqueue = _enqueue_with(client, round_)
            enqueue("plain")
            enqueue("front", front=True)
            enqueue("later", delay=100)
            enqueue("sooner", delay=50)
            enqueue("held", args=["a", round_], unique=True)
            enqueue("held-for-a-time", args=[round_], unique=True, unique_for=10)
            client.enqueue_many([rota.Call("work", queue="q", id=f"{round_}-many-{number}") for number in range(3)])
            admin.hset(keys.events_on, "node", "100")
            enqueue("reported")
            admin.hset(keys.tasks, f"{round_}-cancelled", "")
            enqueue("cancelled")
            admin.hset(keys.former, f"{round_}-ended", "1 1")
            enqueue("ended")
            admin.hset(keys.patterns, "domain", f"9000000000000000 {_PATTERN_SETTINGS}")
            enqueue("of-pattern", queue=f"tenant-{round_}")


def _enqueue_with(client: rota.Client, round_: str) -> Callable[..., Any]:
    def enqueue(name: str, *, queue: str = "", **options: Any) -> Any:
        return client.enqueue("work", queue=queue or f"q-{round_}", id=f"{round_}-{name}", **options)

    return enqueue


def reduced(rules: str, namespace: str, command: str, key: str) -> str:
    """Return these rules without the permission to run one command on one key. The command is still permitted for the
    other keys of the selector.
    """
    pattern = f"~{{{namespace}}}:{key}"

    def without(found: re.Match[str]) -> str:
        words = found[1].split()
        if pattern not in words or f"+{command.lower()}" not in words:
            return found[0]
        keys = [word for word in words if word.startswith("~")]
        commands = [word for word in words if word.startswith("+")]
        others = " ".join([*(word for word in keys if word != pattern), *commands])
        this = " ".join([pattern, *(word for word in commands if word != f"+{command.lower()}")])
        return f"({this})" + (f" ({others})" if len(keys) > 1 else "")

    return re.sub(r"\(([^)]*)\)", without, rules)


@pytest.fixture(name="producer")
def _producer(fleet: Fleet, server: Server, redis_client: "redis.Redis") -> Iterator[Producer]:
    made = Producer(fleet, server, redis_client)
    yield made
    redis_client.acl_deluser(made.user)


def test_a_producer_may_use_every_way_to_enqueue(producer: Producer, redis_client: "redis.Redis") -> None:
    producer.allow()
    redis_client.acl_log_reset()
    producer.do_everything("a")
    refused = {entry["object"] for entry in redis_client.acl_log() if entry["username"] == producer.user}
    # Only the check for misspelt task names reads this key, and it works without the permission.
    assert refused <= {f"{{{producer.namespace}}}:nodes"}


def test_a_producer_needs_each_of_its_permissions(producer: Producer, redis_client: "redis.Redis") -> None:
    unneeded = []
    for number, pair in enumerate(_PAIRS):
        producer.allow(without=pair)
        if not was_refused(producer, redis_client, f"r{number}"):
            unneeded.append(pair)
    assert not unneeded, unneeded


def was_refused(producer: Producer, redis_client: "redis.Redis", round_: str) -> bool:
    """Whether the server refuses any command of a producer. The server's ACL log must be checked too, because scripts
    ignore some refusals.
    """
    redis_client.acl_log_reset()
    try:
        producer.do_everything(round_)
    except rota.Unavailable:
        return True
    refused = {entry["object"] for entry in redis_client.acl_log() if entry["username"] == producer.user}
    return bool(refused - {f"{{{producer.namespace}}}:nodes"})


_FORBIDDEN = (
    ("HGET", "tasks", "other"),
    ("HMGET", "tasks", "other"),
    ("HGETALL", "tasks"),
    ("HDEL", "tasks", "other"),
    ("DEL", "tasks"),
    ("LRANGE", "queue:q", "0", "-1"),
    ("LPOP", "queue:q"),
    ("LREM", "queue:q", "0", "x"),
    ("ZRANGE", "delayed", "0", "-1"),
    ("ZREM", "delayed", "other"),
    ("GET", "result:other"),
    ("LRANGE", "inflight:node:1:1", "0", "-1"),
    ("ZRANGE", "dead", "0", "-1"),
    ("HGETALL", "tickets"),
    ("XRANGE", "events", "-", "+"),
    ("SADD", "paused", "q"),
    ("HSET", "conditions", "x", "y"),
    ("RENAME", "tasks", "queue:q"),
    ("COPY", "tasks", "queue:q"),
    ("DUMP", "tasks"),
)


@pytest.mark.parametrize("attempt", _FORBIDDEN, ids=lambda attempt: " ".join(attempt[:2]))
def test_a_producer_can_neither_read_nor_remove_tasks_of_others(
    producer: Producer, server: Server, attempt: tuple[str, ...]
) -> None:
    producer.allow()
    command, key, *args = attempt
    keys = f"{{{producer.namespace}}}:"
    words = [command, keys + key, *((keys + args[0], *args[1:]) if command in ("RENAME", "COPY") else args)]
    with (
        redis.Redis.from_url(server.url.replace("//", f"//{producer.user}:secret@")) as attacker,
        pytest.raises(redis.exceptions.NoPermissionError),
    ):
        execute(attacker, *words)


@pytest.mark.parametrize(
    "command", ["KEYS *", "SCAN 0", "RANDOMKEY", "FLUSHALL", "CONFIG GET *", "MONITOR", "ACL LIST"]
)
def test_a_producer_may_not_run_commands_that_affect_the_whole_server(
    producer: Producer, server: Server, command: str
) -> None:
    producer.allow()
    with (
        redis.Redis.from_url(server.url.replace("//", f"//{producer.user}:secret@")) as attacker,
        pytest.raises(redis.exceptions.NoPermissionError),
    ):
        execute(attacker, *command.split())


def test_a_producer_cannot_reuse_the_id_of_a_cancelled_running_task(
    producer: Producer, fleet: Fleet, redis_client: "redis.Redis"
) -> None:
    """A producer is not permitted to read whether the cancelled task is still running."""
    producer.allow()
    fleet.push("a")
    owner = fleet.register()
    assert fleet.claim(owner, one_tier("q")) == ["a"]
    redis_client.hset(fleet.keys.tasks, "a", "")
    with producer.connect() as client:
        assert client.enqueue("work", queue="q", id="a").duplicate


def test_an_observer_can_read_tasks_but_not_enqueue_or_cancel(fleet: Fleet, server: Server) -> None:
    fleet.push("a")
    with rota.Client(as_user(server.url, AclRole.OBSERVER), fleet.keys.namespace) as observer:
        assert observer.status("a").state is State.READY
        assert [task.id for task in observer.peek("q")] == ["a"]
        with pytest.raises(rota.Unavailable, match="permission"):
            observer.enqueue("work", queue="q")
        with pytest.raises(rota.Unavailable, match="permission"):
            observer.cancel("a")


def test_no_role_has_access_to_keys_of_other_namespaces(server: Server, redis_client: "redis.Redis") -> None:
    redis_client.hset("{other}:tasks", "a", "[]")
    for role in AclRole:
        words = " ".join(rules_of(role, "own", "none", Topology.SINGLE)).split()
        execute(redis_client, "ACL", "SETUSER", f"own-{role}", "reset", "on", ">secret", *words)
        with (
            redis.Redis.from_url(server.url.replace("//", f"//own-{role}:secret@")) as other,
            pytest.raises(redis.exceptions.NoPermissionError),
        ):
            other.hexists("{other}:tasks", "a")
        redis_client.acl_deluser(f"own-{role}")
    assert name_of(AclRole.FLEET) in redis_client.acl_users()
