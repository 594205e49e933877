"""Mistakes of users. After each mistake, a message explains the problem, the command exits with the documented code,
and no task is lost.
"""

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import hiredis
import pytest
import redis

from rota import InvalidArguments, InvalidName, PayloadTooLarge, Unavailable
from rota.protocol.keys import Keys
from support.fleet_process import rota as run_rota
from support.fleets import UNSIGNED, Fleets, RunningFleet, running_fleet
from support.servers import Server, free_port
from support.waiting import until

OLD_INFO = b"# Server\r\nredis_version:6.2.14\r\nredis_mode:standalone\r\n"


# Files


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("workers = = 3", "rota.toml: "),
        ("workerz = 3", 'workerz: unknown key, did you mean "workers"?'),
        ('workers = "many"', 'workers: expected a whole number >= 0 or a range, as in "2..16", got "many"'),
        ("workers = -1", 'workers: expected a whole number >= 0 or a range, as in "2..16", got -1'),
        ('tiers = [["a"], ["b", "a"]]', 'tiers[1][1]: queue "a" is already in tiers[0][0]'),
        ('tiers = [["a b"]]', "tiers[0][0]: queue name 'a b' is not valid"),
        ('tiers = [["{a}"]]', "tiers[0][0]: queue name '{a}' is not valid"),
        ('namespace = "my {shop}"', "namespace 'my {shop}' is not valid"),
        ('redis_url = "http://localhost"', "redis_url: "),
    ],
)
def test_run_exits_with_78_for_a_faulty_file(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "rota.toml").write_text(text)
    done = run_rota(tmp_path, "run")
    assert (done.returncode, done.stdout) == (78, "")
    assert done.stderr.startswith("rota: error: rota.toml: ")
    assert message in done.stderr


# Servers


def test_run_exits_with_69_without_a_server(tmp_path: Path, namespace: str) -> None:
    url = f"redis://127.0.0.1:{free_port()}/0"
    fleet = RunningFleet(url, namespace, tmp_path, redis_url=url)
    done = fleet.rota("run")
    assert (done.returncode, done.stdout) == (69, "")
    [error_line] = [line for line in done.stderr.splitlines() if line.startswith("rota: error: ")]
    assert url in error_line
    assert "not reachable" in error_line
    assert fleet.processes() == []


def test_run_exits_with_78_if_the_server_evicts_keys(server: Server, tmp_path: Path, namespace: str) -> None:
    (tmp_path / "server").mkdir()
    evicting = Server(server.binary, tmp_path / "server", maxmemory_policy="allkeys-lru").start()
    try:
        done = RunningFleet(evicting.url, namespace, tmp_path).rota("run")
    finally:
        evicting.stop()
    assert done.returncode == 78
    assert "maxmemory-policy allkeys-lru" in done.stderr
    assert "set maxmemory-policy noeviction" in done.stderr


def test_run_exits_with_78_if_the_server_is_too_old(tmp_path: Path, namespace: str) -> None:
    with old_server() as url:
        done = RunningFleet(url, namespace, tmp_path).rota("run")
    assert done.returncode == 78
    assert "the server is Redis 6.2.14, which is too old: Rota needs Redis 7.0 or later, or Valkey 7.2" in done.stderr


@pytest.fixture(scope="module")
def locked(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Yield a server that requires a password."""
    made = Server(server.binary, tmp_path_factory.mktemp("locked")).start()
    with redis.Redis.from_url(made.url) as client:
        client.config_set("requirepass", "sesame")
    yield made
    made.stop()


@pytest.mark.parametrize(
    "command", [("run",), ("check",), ("queue", "ls"), ("audit",), ("dead", "ls"), ("task", "show", "x")]
)
def test_commands_exit_with_69_if_the_server_requires_a_password(
    locked: Server, tmp_path: Path, namespace: str, command: tuple[str, ...]
) -> None:
    done = RunningFleet(locked.url, namespace, tmp_path, redis_url=locked.url).rota(*command)
    assert done.returncode == 69
    assert f"rota: error: Redis at {locked.url} needs a password, but redis_url contains none" in done.stderr
    assert "redis://:PASSWORD@HOST:PORT/0" in done.stderr


@pytest.mark.parametrize("database", [0, 3])
def test_enqueue_without_the_password_fails_with_the_reason(
    locked: Server, tmp_path: Path, namespace: str, database: int
) -> None:
    url = f"{locked.url[:-1]}{database}"
    fleet = RunningFleet(url, namespace, tmp_path, redis_url=url)
    done = fleet.rota("task", "enqueue", "note", "--queue", "default")
    assert done.returncode == 69
    assert url in done.stderr
    assert (
        "needs a password: put it into redis_url (or ROTA_REDIS_URL), as in "
        "redis://:PASSWORD@HOST:PORT/0" in done.stderr
    )
    with pytest.raises(Unavailable, match="needs a password"):
        fleet.client.enqueue("note", queue="default")


def test_check_exits_with_69_for_a_wrong_password_and_hides_it(locked: Server, tmp_path: Path, namespace: str) -> None:
    url = locked.url.replace("://", "://:opensaysme@")
    done = RunningFleet(url, namespace, tmp_path).rota("check", "--no-imports")
    assert done.returncode == 69
    assert "check the user and the password in redis_url" in done.stderr
    assert "opensaysme" not in done.stderr


def test_no_password_is_shown_if_the_server_does_not_know_auth(server: Server, tmp_path: Path, namespace: str) -> None:
    (tmp_path / "server").mkdir()
    deaf = Server(server.binary, tmp_path / "server", rename_command='AUTH ""').start()
    try:
        fleet = RunningFleet(deaf.url.replace("://", "://:sesame@"), namespace, tmp_path)
        for command in (("check",), ("run",), ("task", "enqueue", "note", "--queue", "default")):
            done = fleet.rota(*command)
            assert done.returncode == 69
            assert "unknown command" in done.stderr
            assert "sesame" not in done.stderr
    finally:
        deaf.stop()


@contextmanager
def old_server() -> Iterator[str]:
    """Yield the URL of a server that replies like Redis 6.2, which rejects the first line of every script."""
    listening = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=_serve, args=(listening,))
    thread.start()
    try:
        yield f"redis://127.0.0.1:{listening.getsockname()[1]}/0"
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join()


def _serve(listening: socket.socket) -> None:
    while True:
        try:
            connected, _ = listening.accept()
        except OSError:  # the server socket was shut down
            return
        with connected:
            _serve_connection(connected)


def _serve_connection(connected: socket.socket) -> None:
    reader = hiredis.Reader(notEnoughData=b"")
    while received := connected.recv(65_536):
        reader.feed(received)
        while command := reader.gets():
            connected.sendall(_reply_to(command))


def _reply_to(command: list[bytes]) -> bytes:
    match command[0].upper():
        case b"INFO":
            return b"$%d\r\n%s\r\n" % (len(OLD_INFO), OLD_INFO)
        case b"EVALSHA":
            return b"-NOSCRIPT No matching script. Please use EVAL.\r\n"
        case b"EVAL":
            return b"-ERR Error compiling script (new function): user_script:1: unexpected symbol near '#'\r\n"
        case _:
            return b"+OK\r\n"


# Modules


@pytest.mark.parametrize(
    ("module", "message"),
    [
        ("import nowhere", "No module named 'nowhere'"),
        ("raise RuntimeError('not today')", "RuntimeError: not today"),
        ("def f(:", "SyntaxError"),
        ("import rota\n@rota.task(queue='lost')\ndef f(): ...", "'lost'"),
    ],
)
def test_run_exits_with_78_for_a_broken_module_and_keeps_tasks(fleets: Fleets, module: str, message: str) -> None:
    fleet = fleets.make()
    (fleet.folder / "tasks.py").write_text(module)
    task_id = fleet.client.enqueue("note", queue="default").id
    done = fleet.rota("run")
    assert done.returncode == 78
    [error_line] = [line for line in done.stderr.splitlines() if line.startswith("rota: error: ")]
    assert message in error_line
    assert fleet.processes() == []
    assert fleet.client.status(task_id).state == "ready"


# Tasks


@pytest.fixture(scope="module")
def fleet(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningFleet]:
    folder = tmp_path_factory.mktemp("input")
    with running_fleet(server.url, folder.name, folder, tiers=[["default", "late"]], signing=UNSIGNED) as running:
        yield running


NAMELESS = ("not JSON at all", '{"id": 7}', "[]", "")
UNFIT = {
    '["u1", "default", "nowhere", [1]]': (
        "unknown_task",
        "no module that the fleet imports declares a task named 'nowhere'",
    ),
    '["u2", "default", "add", [1]]': ("arguments", "add(first: int, second: int)"),
    '["u3", "default", "add", [1, 2, 3]]': ("arguments", "add(first: int, second: int)"),
    '["u4", "default", "add", [1, NaN]]': ("garbage", "NaN is not a JSON number"),
    '["u5", "default", "add", {"first": 1}]': ("garbage", "the arguments of add are not an array"),
    '["u6", "default", "add {}", [1]]': ("garbage", "task name 'add {}' is not valid"),
    f'["u7", "default", "note", ["{"x" * 300_000}"]]': ("garbage", "but the limit is 262144"),
    NAMELESS[0]: ("garbage", "the body is not JSON"),
    NAMELESS[1]: ("garbage", "the body is not an array [id, queue, name, args]"),
    NAMELESS[2]: ("garbage", "the body is not an array [id, queue, name, args]"),
    NAMELESS[3]: ("garbage", "the body is not JSON"),
}


@pytest.mark.parametrize("delayed", [False, True])
def test_a_pushed_item_that_cannot_run_becomes_dead_with_a_reason(
    fleet: RunningFleet, redis_client: "redis.Redis", delayed: bool
) -> None:
    queue = "late" if delayed else "default"
    items = {item.replace("default", queue): why for item, why in UNFIT.items()}
    if delayed:  # only an item in the delayed set must name its queue
        items |= dict.fromkeys(NAMELESS, ("garbage", "no queue could be read"))
    fleet.rota("dead", "purge", "--all", "--yes")
    until(lambda: fleet.metrics().total("rota_queue_dead_tasks") == 0)
    keys = Keys(fleet.namespace)
    if delayed:
        redis_client.zadd(keys.delayed, dict.fromkeys(items, time.time()))
    else:
        redis_client.rpush(keys.ready_lane(queue), *items)
    until(lambda: fleet.metrics().total("rota_queue_dead_tasks") == len(items), "all of them dead")
    # An empty item is pushed as a space, because an empty body means that the task was cancelled.
    dead = {each["body"].strip(" "): each["death"] for each in fleet.rota_json("dead", "ls")}
    for item, (reason, error) in items.items():
        assert dead[item]["reason"] == reason, item
        assert error in dead[item]["error"]
    fleet.client.enqueue("note", args=["after"], queue="default")
    fleet.wait_for("end", label="after")
    assert fleet.books_balance()


def test_the_client_refuses_invalid_calls_before_sending(fleet: RunningFleet, redis_client: "redis.Redis") -> None:
    accepted = redis_client.hgetall(Keys(fleet.namespace).totals)
    client = fleet.client
    with pytest.raises(InvalidArguments, match="set"):
        client.enqueue("note", args=[{1, 2}], queue="default")
    with pytest.raises(InvalidArguments, match="nan"):
        client.enqueue("note", args=[float("nan")], queue="default")
    with pytest.raises(PayloadTooLarge, match="256 KiB"):
        client.enqueue("note", args=["x" * 300_000], queue="default")
    for queue in ("a b", "{a}", "", "a-delayed"):
        with pytest.raises(InvalidName):
            client.enqueue("note", queue=queue)
    for name in ("a b", "{a}"):
        with pytest.raises(InvalidName):
            client.enqueue(name, queue="default")
        with pytest.raises(InvalidName):
            client.enqueue("note", queue="default", id=name)
    assert redis_client.hgetall(Keys(fleet.namespace).totals) == accepted


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], 'no task is named "nowhere" in the imports (tasks)'),
        (["add", "1"], "the arguments do not fit add(first: int, second: int)"),
        (["add", "1", "2", "3"], "the arguments do not fit add(first: int, second: int)"),
        (["note", *["x" * 100_000] * 3, "--queue", "default"], "the limit is 256 KiB"),
        (["note", "--queue", "a b"], "queue name 'a b' is not valid"),
        (["note", "--queue", "{a}"], "queue name '{a}' is not valid"),
        (["note", "--id", "a b"], "id 'a b' is not valid"),
        (["note", "--kwargs", "label=1"], "--kwargs is not JSON"),
    ],
)
def test_the_command_line_refuses_invalid_calls_with_exit_code_2(
    fleet: RunningFleet, redis_client: "redis.Redis", arguments: list[str], message: str
) -> None:
    accepted = redis_client.hgetall(Keys(fleet.namespace).totals)
    done = fleet.rota("task", "enqueue", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert redis_client.hgetall(Keys(fleet.namespace).totals) == accepted


def test_invalid_ids_of_pushed_items_are_replaced(fleet: RunningFleet, redis_client: "redis.Redis") -> None:
    item = json.dumps(["an id {with} spaces", "default", "note", ["renamed"]])
    redis_client.rpush(Keys(fleet.namespace).ready_lane("default"), item)
    [start] = fleet.wait_for("start", label="renamed")
    assert " " not in start.id
