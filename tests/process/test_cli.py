"""The command line: exit codes, messages, and standard output. Commands that import tasks run in separate processes.
Most other commands run in a separate process once, and otherwise in this process, which is many times faster.
"""

import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
import redis

from rota.protocol.keys import Keys
from rota.protocol.nodes import heartbeat_of
from rota.protocol.outcome import DeadOutcome, Settlement, join_settlements, pack_settlement
from rota.protocol.store import Store
from rota.protocol.tiers import QueueShare, domain_of, pack_tiers
from rota.protocol.turns import Turn
from rota.server.address import parse_address
from rota.server.connection import Connection
from support.command_line import Ran, Rota, rota_in
from support.servers import Server, free_port

TASKS = """
import rota
print("a module that prints at import")

@rota.task
def greet(name): ...

@rota.task(queue="bulk")
def resize(number: int, dpi: int = 72): ...
"""
NO_POOLS = "redis://127.0.0.1:1/0"


def call(folder: Path, *arguments: str, **environment: str) -> Ran:
    """Run `rota` as a separate process in this folder, with an empty standard input."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("ROTA_", "REDIS_"))}
    done = subprocess.run(
        [sys.executable, "-P", "-m", "rota_supervisor", *arguments],
        cwd=folder,
        env=inherited | {"XDG_RUNTIME_DIR": str(folder)} | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return Ran(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def inside(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Rota:
    """Return a function that runs `rota` in this process. Use it for commands that import no tasks."""
    return rota_in(folder, monkeypatch, capsys)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a tasks module, and a configuration whose server is unreachable."""
    (tmp_path / "tasks.py").write_text(TASKS)
    (tmp_path / "rota.toml").write_text(
        f'redis_url = "{NO_POOLS}"\nimports = ["tasks"]\ntiers = [["default"], ["bulk"]]\n'
    )
    return tmp_path


@pytest.fixture
def at_server(server: Server, namespace: str) -> dict[str, str]:
    """Return environment variables that make a command use the real server."""
    return {"ROTA_REDIS_URL": server.url, "ROTA_NAMESPACE": namespace}


@pytest.fixture
def rota(inside: Rota, at_server: dict[str, str]) -> Rota:
    """Return a function that runs `rota` in this process, with this folder and the real server."""
    return lambda *arguments, **environment: inside(*arguments, **at_server | environment)


@pytest.fixture
def process(folder: Path, at_server: dict[str, str]) -> Rota:
    """Return a function that runs `rota` in a separate process with the real server. Use it for commands that import
    tasks or handle processes.
    """
    return lambda *arguments, **environment: call(folder, *arguments, **at_server | environment)


# Usage


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fly"], "No such command 'fly': there are init, run, "),
        (["worker"], "No such command 'worker': see `rota run --help`\n"),
        (["queue", "ls", "ten*ant"], "pattern 'ten*ant' is not valid: * may appear only at its end"),
        (["check", "--no-import"], """No such option '--no-import', did you mean "--no-imports"? (see"""),
        (
            ["queue", "fly"],
            "there are explain, ls, pause, purge, resume (see `rota queue --help`)",
        ),
        (["queue", "purge"], "Missing argument 'QUEUE' (see `rota queue purge --help`)"),
        (["queue", "pause", "a b"], "queue name 'a b' is not valid: a name has 1 to 128 of the characters"),
        (["task", "show", "{x}"], "id '{x}' is not valid: a name has 1 to 128 of the characters"),
        (["queue", "explain", "a b"], "queue name 'a b' is not valid"),
        (["queue", "explain", "q", "--id", "a"], "name a queue or use --id, not both"),
        (["queue", "explain", "--id", "a b"], "id 'a b' is not valid"),
        (["queue", "explain", "-n", "1001"], "'-n': expected a whole number from 1 to 1000, got '1001'"),
        (["task", "enqueue", "greet", "--kwargs", "{"], "--kwargs is not JSON"),
        (["task", "enqueue", "greet", "--kwargs", "[]"], "--kwargs is not a JSON object"),
        (["task", "enqueue", "greet", "x", "--wait", "--timeout", "nan"], "'nan' is not a duration"),
        (["task", "ls", "--task", "{x}"], "task name '{x}' is not valid"),
        (["events", "--queue", "{x}"], "queue name '{x}' is not valid"),
        (["events", "--after", "then"], '--after must be the id of an event, "0" for all that are kept, or "now", got'),
        (["dead", "revive"], "pass ids, or use --all, with --queue, --task or --reason to select tasks"),
        (["dead", "purge", "x", "--all"], "pass either ids, or --all with filter options"),
        (["run", "-w", "many"], "-w must be a number, a range as in 2..16, or POOL=NUMBER, not 'many'"),
        (["run", "-w", "9" * 5000], "-w must be a number, a range as in 2..16, or POOL=NUMBER, not '9999"),
        (["status", "--fast"], "No such option '--fast' (see `rota status --help`)"),
    ],
)
def test_wrong_usage_exits_with_2_and_a_message(inside: Rota, arguments: list[str], message: str) -> None:
    done = inside(*arguments)

    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("rota: error: ")
    assert message in done.err


def test_help_and_version_go_to_standard_output(inside: Rota) -> None:
    for arguments in (["-h"], ["run", "-h"], ["queue", "-h"]):
        done = inside(*arguments)
        assert (done.code, done.err) == (0, "")
        assert done.out.startswith("Usage: rota")
    assert inside("--version").out == "rota 0.1.0\n"


# Configuration


def test_invalid_file_exits_with_78_and_lists_every_fault(inside: Rota, folder: Path) -> None:
    (folder / "rota.toml").write_text('workers = -1\nworkerz = 2\ntiers = [["a"], ["a"]]\n')

    done = inside("check")

    assert (done.code, done.out) == (78, "")
    assert done.err.splitlines() == [
        'rota: error: rota.toml: workers: expected a whole number >= 0 or a range, as in "2..16", got -1',
        'rota: error: rota.toml: workerz: unknown key, did you mean "workers"?',
        'rota: error: rota.toml: tiers[1][0]: queue "a" is already in tiers[0][0]: remove one of them',
    ]


def test_errors_in_variables_and_flags_do_not_name_the_configuration_file(inside: Rota) -> None:
    fault = 'rota: error: ROTA_WORKERS: expected a whole number >= 0 or a range, as in "2..16", got "many"\n'
    assert inside("check", ROTA_WORKERS="many").err == fault
    assert (
        inside("run", "--pool", "none").err
        == "rota: error: --pool none: there is no such pool: the only pool is default\n"
    )


def test_missing_configuration_file_exits_with_78(inside: Rota) -> None:
    done = inside("check", "-c", "none.toml")

    assert (done.code, done.err) == (78, "rota: error: none.toml: there is no such file; `rota init` writes one\n")


def test_configuration_file_can_be_named_by_flag_or_environment(inside: Rota, folder: Path) -> None:
    (folder / "other.toml").write_text('namespace = "other"')

    for arguments, environment in (
        (["-c", "other.toml", "config", "print"], {}),
        (["config", "print", "--config", "other.toml"], {}),
        (["config", "print"], {"ROTA_CONFIG": "other.toml"}),
    ):
        assert 'namespace = "other"' in inside(*arguments, **environment).out


def test_config_print_shows_origins_and_no_password(inside: Rota) -> None:
    done = inside("config", "print", "--origin", ROTA_REDIS_URL="redis://me:hunter2@db/1", ROTA_WORKERS="3")

    assert done.code == 0
    assert 'redis_url = "redis://me:***@db/1"  # environment ROTA_REDIS_URL' in done.out
    assert "workers = 3  # environment ROTA_WORKERS" in done.out
    assert 'imports = ["tasks"]  # file rota.toml' in done.out
    assert "pollers = 1  # default" in done.out
    assert "hunter2" not in done.out + done.err


def test_config_print_as_json_is_one_document(inside: Rota) -> None:
    found = inside("config", "print", "--origin", "--json").json

    assert isinstance(found, dict)
    assert found["config"]["imports"] == ["tasks"]
    assert found["origins"]["limits.drain_seconds"] == "default"


def test_an_unknown_variable_is_a_warning(inside: Rota) -> None:
    done = inside("config", "print", ROTA_PORT_80_TCP="tcp://10.0.0.1:80")

    assert done.code == 0
    assert done.err == "rota: warning: ROTA_PORT_80_TCP in the environment is not a setting of Rota and is ignored\n"


# Commands without a server and a master


@pytest.mark.parametrize(
    "arguments",
    [
        ["queue", "ls"],
        ["queue", "explain"],
        ["dead", "ls"],
        ["audit"],
        ["task", "show", "x"],
        ["task", "enqueue", "greet", "you", "--queue", "default"],
        ["check", "--no-imports"],
    ],
)
def test_unreachable_redis_exits_with_69(inside: Rota, arguments: list[str]) -> None:
    done = inside(*arguments)

    assert (done.code, done.out) == (69, "")
    assert "127.0.0.1:1" in done.err


@pytest.mark.parametrize("command", ["status", "reload", "stop"])
def test_missing_master_exits_with_69_and_names_the_socket(inside: Rota, folder: Path, command: str) -> None:
    done = inside(command)

    assert (done.code, done.out) == (69, "")
    assert f"no master is listening at {folder}/rota/rota.sock" in done.err
    assert "there is no rota.toml" not in done.err
    (folder / "rota.toml").unlink()
    assert "there is no rota.toml in this folder: name it with -c FILE if it is elsewhere" in inside(command).err


def test_health_without_a_fleet_exits_with_69(inside: Rota) -> None:
    done = inside("health", "--ready", ROTA_HTTP__LISTEN=f"127.0.0.1:{free_port()}")

    assert (done.code, done.out) == (69, "")


def test_invalid_file_without_a_master_exits_with_78(inside: Rota, folder: Path) -> None:
    (folder / "rota.toml").write_text("workers = -1")

    done = inside("stop")

    assert (done.code, done.err) == (
        78,
        'rota: error: rota.toml: workers: expected a whole number >= 0 or a range, as in "2..16", got -1\n',
    )


# Check


def test_check_of_a_valid_setup_exits_with_0(process: Rota) -> None:
    done = process("check", "--json")

    assert done.code == 0
    found = done.json
    assert isinstance(found, dict)
    assert found["tasks"] == {"greet": "default", "resize": "bulk"}
    assert found["queues"] == ["default", "bulk"]


def test_check_without_a_file_suggests_rota_init(tmp_path: Path, server: Server, namespace: str) -> None:
    found = call(tmp_path, "check", ROTA_REDIS_URL=server.url, ROTA_NAMESPACE=namespace)
    assert (found.code, found.out) == (78, "")
    assert "there is no rota.toml in this folder" in found.err
    assert "write a file with `rota init`" in found.err
    assert "ready to run" not in found.err


def test_check_warns_of_schedule_arguments_that_do_not_fit(rota: Rota, folder: Path) -> None:
    with (folder / "rota.toml").open("a") as file:
        file.write('[schedules.fits]\ntask = "greet"\nevery = 60\nargs = ["you"]\n')
        file.write('[schedules.broken]\ntask = "greet"\nevery = 60\n')
    done = rota("check")

    assert done.code == 0
    assert "schedules.broken.args: the arguments do not fit greet(" in done.err
    assert "schedules.fits" not in done.err


@pytest.mark.parametrize(
    ("module", "message"),
    [
        ("import nowhere", "module tasks cannot be imported: ModuleNotFoundError: No module named 'nowhere'"),
        ("def f(:", "module tasks cannot be imported: SyntaxError: "),
        ("raise SystemExit(3)", "module tasks cannot be imported: SystemExit: 3"),
        ("import os; os._exit(4)", "importing tasks ended the process: the process exited with 4"),
        ("import os; os.kill(os.getpid(), 9)", "importing tasks ended the process: the process died of SIGKILL"),
        ("import time; time.sleep(600)", "importing tasks took longer than 1 s (limits.boot_seconds)"),
        (
            "import rota\n@rota.task(queue='lost')\ndef f(): ...",
            "no tier serves queue 'lost' of task 'f'",
        ),
    ],
)
def test_check_of_unusable_modules_exits_with_78(inside: Rota, folder: Path, module: str, message: str) -> None:
    (folder / "tasks.py").write_text(module)

    done = inside("check", ROTA_LIMITS__BOOT_SECONDS="1" if "sleep" in module else "30")

    assert (done.code, done.out) == (78, "")
    assert message in done.err


def test_check_warns_if_max_series_omits_queues(rota: Rota) -> None:
    found = rota("check", "--no-imports", ROTA_METRICS__MAX_SERIES="100")
    assert "metrics.max_series = 100: " in found.err
    enough = found.err.partition(" is enough")[0].rpartition(" ")[2]
    assert "max_series" not in rota("check", "--no-imports", ROTA_METRICS__MAX_SERIES=enough).err


def test_check_can_report_unserved_queues_as_a_warning_only(rota: Rota) -> None:
    done = rota("check", ROTA_TIERS='[["default"]]', ROTA_UNSERVED_QUEUES="warn")

    assert done.code == 0
    assert "rota: warning: tiers: no tier serves queue 'bulk' of task 'resize'" in done.err


def test_server_that_evicts_keys_exits_with_78(rota: Rota, redis_client: "redis.Redis") -> None:
    redis_client.config_set("maxmemory-policy", "allkeys-lru")
    try:
        done = rota("check", "--no-imports")
    finally:
        redis_client.config_set("maxmemory-policy", "noeviction")

    assert done.code == 78
    assert "set maxmemory-policy noeviction" in done.err


# Tasks and queues


def test_a_task_is_enqueued_shown_and_cancelled(rota: Rota, process: Rota) -> None:
    enqueued = process("task", "enqueue", "resize", "7", "--kwargs", '{"dpi": 300}', "--delay", "600")
    assert enqueued.code == 0
    task_id = enqueued.out.strip()

    shown = process("task", "show", task_id, "--json").json
    assert isinstance(shown, dict)
    assert (shown["state"], shown["queue"], shown["name"]) == ("scheduled", "bulk", "resize")
    assert "state:             scheduled\n" in rota("task", "show", task_id).out

    refused = rota("task", "cancel", task_id, "--kill-after", "0")
    assert (refused.code, "--kill-after must be more than 0 seconds" in refused.err) == (2, True)
    assert rota("task", "cancel", task_id).err == f"rota: cancelled {task_id}\n"

    again = process("task", "cancel", task_id)
    assert (again.code, again.err) == (1, f"rota: error: {task_id} has already ended: it is cancelled\n")


def test_arguments_that_are_not_json_are_text(rota: Rota, redis_client: "redis.Redis", namespace: str) -> None:
    sent = rota("task", "enqueue", "any", "7", "true", "[1, 2]", "large", "-1", "--queue", "default", "--id", "a1")

    assert (sent.code, sent.out) == (0, "a1\n")
    body = redis_client.hget(Keys(namespace).tasks, "a1")
    assert json.loads(str(body, "utf-8") if isinstance(body, bytes) else "")[3] == [7, True, [1, 2], "large", -1]


def test_enqueue_at_the_front_warns_if_no_fleet_exists(rota: Rota, redis_client: "redis.Redis", namespace: str) -> None:
    lane = Keys(namespace).ready_lane("default")
    redis_client.rpush(lane, '["waits","default","any",[]]')
    sent = rota("task", "enqueue", "any", "--queue", "default", "--id", "a1", "--front")
    assert (sent.code, sent.out) == (0, "a1\n")
    assert "rota: warning: no fleet has ever run in namespace" in sent.err
    head = redis_client.lindex(lane, 0)
    assert isinstance(head, bytes)
    assert head.startswith(b"a1 ")


def test_enqueueing_a_live_id_at_the_shell_reports_a_duplicate(rota: Rota) -> None:
    for duplicate in (False, True):
        done = rota("task", "enqueue", "any", "--queue", "default", "--id", "a1", "--json")
        assert done.json == {"id": "a1", "duplicate": duplicate}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gret"], 'no task is named "gret" in the imports (tasks), did you mean "greet"?'),
        (["greet"], "the arguments do not fit greet(name)"),
        (["greet", "a", "b"], "the arguments do not fit greet(name)"),
    ],
)
def test_an_enqueue_that_does_not_match_the_imported_tasks_exits_with_2(
    rota: Rota, process: Rota, arguments: list[str], message: str
) -> None:
    refused_enqueue(process, rota, arguments, message)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a b", "--queue", "default"], "task name 'a b' is not valid"),
        (["greet", "x", "--queue", "{x}"], "queue name '{x}' is not valid"),
        (["greet", "x" * 3000, "--queue", "default"], "the limit is 2 KiB"),
    ],
)
def test_invalid_enqueue_exits_with_2(rota: Rota, arguments: list[str], message: str) -> None:
    refused_enqueue(rota, rota, arguments, message)


def refused_enqueue(enqueuing: Rota, looking: Rota, arguments: list[str], message: str) -> None:
    done = enqueuing("task", "enqueue", *arguments, ROTA_LIMITS__MAX_PAYLOAD_KB="2")

    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert looking("audit", "--json").out.startswith('{"accepted": 0')


def test_enqueue_with_wait_exits_with_69_if_the_acl_forbids_waiting(
    process: Rota, server: Server, redis_client: "redis.Redis"
) -> None:
    redis_client.acl_setuser(
        "half", enabled=True, passwords=["+pw"], keys=["*"], commands=["+@all", "-blpop"], reset=True
    )
    url = server.url.replace("redis://", "redis://half:pw@")
    done = process("task", "enqueue", "greet", '"x"', "--wait", ROTA_REDIS_URL=url)
    redis_client.acl_deluser("half")

    assert (done.code, done.out) == (69, "")
    assert "permission" in done.err


def test_commands_exit_with_1_for_an_unknown_task_id(rota: Rota) -> None:
    for arguments in (
        ["task", "show", "none"],
        ["task", "cancel", "none"],
        ["dead", "show", "none"],
        ["dead", "revive", "none"],
    ):
        done = rota(*arguments)
        assert (done.code, done.out) == (1, "")
        assert '"none"' in done.err


def test_queues_are_listed_paused_and_purged(rota: Rota, process: Rota) -> None:
    for number in range(3):
        rota("task", "enqueue", "any", str(number), "--queue", "default")
    assert rota("queue", "pause", "default").err == 'rota: queue "default" is paused\n'

    listed = rota("queue", "ls")
    assert listed.out.splitlines()[0].split()[:2] == ["QUEUE", "READY"]
    row = next(line for line in listed.out.splitlines() if line.startswith("default"))
    assert row.split()[1] == "3"
    assert "paused" in row

    refused = process("queue", "purge", "default")
    assert (refused.code, refused.out) == (2, "")
    assert 'this would purge 3 ready tasks of queue "default": confirm it with --yes, because there' in refused.err
    assert "--yes" in refused.err
    assert rota("queue", "purge", "default", "--yes", "--json").json == {"queue": "default", "purged": 3}
    assert process("audit").code == 0


def test_queue_explain_lists_the_next_claims(rota: Rota, server: Server, namespace: str) -> None:
    for number in range(3):
        rota("task", "enqueue", "resize", str(number), "--queue", "default", "--id", f"a{number}")
    nobody = "pools: no running master has a pool, so no worker claims tasks\nserved by no fleet: default\n"
    assert rota("queue", "explain").out == nobody

    pools = {"all": [domain_of([QueueShare("default", cap=2), QueueShare("bulk")])]}
    with closing(Connection(parse_address(f"unix://{server.socket_path}"))) as connection:
        connection.run(Store(namespace).announce("web-1", heartbeat_of(7, pools), 60_000, ["default", "bulk"]))
    unserved = rota("queue", "explain", "defalt")
    assert unserved.out == "queue defalt: no pool of a running fleet serves it; add it to `tiers` in rota.toml\n\n"
    assert 'the queue "defalt" is not known, did you mean "default"?' in unserved.err
    shown = rota("queue", "explain", "-n", "5").out.splitlines()
    assert shown[0] == "pool all on web-1: the next 2 claims"
    assert shown[1].split() == ["#", "QUEUE", "TASK", "ID", "TIER", "LANE", "ATTEMPT", "WHY"]
    assert shown[2].split()[:6] == ["1", "default", "resize", "a0", "1", "ready"]
    assert shown[2].endswith("no other queue of its tier has a ready task, task 1 of at most 2 that run at once")
    assert "its cap is reached until a task ends: 2 of 2 tasks are running" in shown[-2]

    told = rota("queue", "explain", "--id", "a2").out
    behind = "it is ready, but is not among these claims: 2 tasks of its queue come before it\nqueue default"
    assert told.startswith(behind)
    found = json.loads(rota("queue", "explain", "default", "--json").out)
    assert [claim["id"] for claim in found["pools"][0]["claims"]] == ["a0", "a1"]
    assert found["pools"][0]["queues"][0]["outlook"] == "cap"
    refused = rota("queue", "explain", "--pool", "mail")
    assert (refused.code, refused.out) == (1, "")
    assert 'no running master has a pool "mail": the pools are all' in refused.err
    unknown = rota("queue", "explain", "--id", "unheard")
    assert (unknown.code, unknown.out) == (1, "")
    assert 'the server knows nothing about a task "unheard"' in unknown.err


def test_audit_with_a_missing_task_exits_with_1(
    rota: Rota, process: Rota, redis_client: "redis.Redis", namespace: str
) -> None:
    rota("task", "enqueue", "any", "--queue", "default", "--id", "a1")
    redis_client.hdel(Keys(namespace).tasks, "a1")

    done = process("audit", "--json")

    assert done.code == 1
    assert json.loads(done.out)["missing"] == 1
    assert "the counters are off by 1 task" in done.err


def test_audit_names_lists_that_only_resemble_queues(rota: Rota, redis_client: "redis.Redis", namespace: str) -> None:
    ours, item = Keys(namespace).ready_lane(""), '["6f2a8a3e-7ad2-4a0b-9a3e-0d3d7f6b8f01", "email", "greet", []]'
    strays = [
        f"{ours}mail box",
        f"{ours}tenant-*",
        f"{ours}{'x' * 129}",
        f"{ours}na\u00efve-delayed",
        f"{namespace}:queue:email",
        f"{{{namespace}}}queue:email",
        f"{{{namespace}:queue:email}}",
        f"{{{namespace}}}:queues:email",
    ]
    others = [f"{ours}email", f"{ours}email-delayed", f"{{x{namespace}}}:queue:email", f"x{namespace}:queue:email"]
    for key in (*strays, *others):
        redis_client.rpush(key, item)
    redis_client.set(f"{namespace}:queue:text", "no list")

    done = rota("audit", "--json")
    assert done.code == 0, "items that were never accepted are not missing"
    assert {each["key"] for each in json.loads(done.out)["strays"]} == set(strays)
    assert all(each["items"] == 1 for each in json.loads(done.out)["strays"])
    listed = rota("queue", "ls")
    for key in strays:
        assert f'from the list "{key}"' in listed.err
    assert f"the key of queue email is {ours}email" in listed.err
    assert redis_client.lrange(strays[0], 0, -1) == [item.encode()], "nothing is lost"

    adopted = rota("audit", "--json", ROTA_ADOPT=json.dumps({f"{namespace}:queue:email": {}}))
    assert len(json.loads(adopted.out)["strays"]) == len(strays) - 1, adopted.err
    redis_client.delete(*strays, *others, f"{namespace}:queue:text")


def test_audit_heal_corrects_wrong_counts(rota: Rota, redis_client: "redis.Redis", namespace: str) -> None:
    for number in range(3):
        rota("task", "enqueue", "any", str(number), "--queue", "default", "--delay", "600")
    redis_client.hset(Keys(namespace).counts, mapping={"delayed:default": 70, "dead:default": 7})

    done = rota("audit", "--heal", "--json")

    assert (done.code, done.err) == (0, "rota: recounted in 1 step\n")
    listed = rota("queue", "ls", "--json").json
    assert isinstance(listed, list)
    row = next(row for row in listed if row["queue"] == "default")
    assert (row["scheduled"], row["dead"]) == (3, 0)


def test_events_that_are_off_exit_with_1_and_a_hint(rota: Rota) -> None:
    done = rota("events")
    assert (done.code, done.out) == (1, "")
    assert "enabled = true" in done.err


def test_events_are_shown_as_text_and_json(rota: Rota, redis_client: "redis.Redis", namespace: str) -> None:
    redis_client.hset(Keys(namespace).events_on, "node", "1000")
    assert rota("task", "enqueue", "greet", "you", "--id", "a", "--queue", "default").code == 0
    assert rota("task", "enqueue", "resize", "7", "--id", "b", "--queue", "bulk", "--delay", "60").code == 0
    [first, second] = rota("events").out.splitlines()
    assert first.split()[1:] == ["enqueued", "default", "greet", "a", "attempt=0"]
    assert second.split()[1:5] == ["scheduled", "bulk", "resize", "b"]
    [line] = rota("events", "--queue", "bulk", "--json").out.splitlines()
    event = json.loads(line)
    assert (event["task_id"], event["event"]) == ("b", "scheduled")
    assert "due_at" in event
    assert rota("events", "--after", event["id"]).out == ""
    assert rota("events", "--after", "yesterday").code == 2
    lost = rota("events", "--after", f"1{event['id']}")
    assert (lost.code, lost.out) == (0, "")
    assert "lost its latest writes" in lost.err


def test_tasks_are_listed_by_state(rota: Rota, dead_task: str) -> None:
    for task_id, delay in (("r1", "0"), ("r2", "0"), ("s1", "600")):
        rota("task", "enqueue", "any", "--queue", "default", "--id", task_id, "--delay", delay)
    for state, ids in (("ready", ["r1", "r2"]), ("scheduled", ["s1"]), ("dead", [dead_task]), ("running", [])):
        listed = rota("task", "ls", "--state", state)
        assert [line.split()[0] for line in listed.out.splitlines()[1:]] == ids
        assert "\x1b" not in listed.out
        rows = rota("task", "ls", "default", "--state", state, "--json").json
        assert isinstance(rows, list)
        assert [(row["id"], row["state"]) for row in rows] == [(task_id, state) for task_id in ids]
    first = rota("task", "ls", "--limit", "1", "--task", "any")
    assert [line.split()[0] for line in first.out.splitlines()[1:]] == ["r1"]
    assert first.err == "rota: there are more tasks: these are the first 1, see --limit\n"
    wrong = rota("task", "ls", "default-delayed")
    assert (wrong.code, "may not end in" in wrong.err) == (2, True)


# Dead tasks


@pytest.fixture
def dead_task(server: Server, namespace: str) -> str:
    """Return the id of a dead task whose error text contains control characters."""
    connection = Connection(parse_address(server.url))
    store = Store(namespace)
    queue = pack_tiers([domain_of([QueueShare("default")])])
    [owner] = connection.run(store.register(60_000, ["test:8"]))
    connection.execute("RPUSH", Keys(namespace).ready_lane("default"), '["d1","default","send",[1]]')
    [claim] = connection.run(store.turn(owner, queue, Turn(1))).claims
    record = json.dumps({"reason": "error", "error": "SMTPError: \x1b[2J refused"}).encode()
    settled = join_settlements([pack_settlement(Settlement(claim.entry, DeadOutcome(record)))])
    connection.run(store.turn(owner, queue, Turn(0, settlements=settled)))
    connection.close()
    return claim.entry.id


def test_dead_tasks_are_listed_shown_and_revived(rota: Rota, dead_task: str) -> None:
    listed = rota("dead", "ls")
    assert listed.out.splitlines()[1].split()[:3] == [dead_task, "default", "send"]
    assert "\x1b" not in listed.out
    for shown in (rota("dead", "show", dead_task).out, rota("task", "show", dead_task).out):
        assert shown.count("SMTPError") == 1
        assert "death" not in shown  # the fields of the death record are shown individually
    for option, value in (("--queue", "other"), ("--task", "other"), ("--reason", "other")):
        assert rota("dead", "ls", option, value, "--json").json == []

    assert rota("dead", "revive", dead_task, "--json").json == {"revived": 1}
    assert rota("dead", "ls", "--json").json == []


def test_a_dead_item_that_names_no_queue_cannot_be_revived(
    rota: Rota, server: Server, redis_client: "redis.Redis", namespace: str, dead_task: str
) -> None:
    redis_client.zadd(Keys(namespace).delayed, {"nonsense": 1})
    connection = Connection(parse_address(server.url))
    connection.run(Store(namespace).promote(500))
    connection.close()
    listed = rota("dead", "ls", "--queue", "unknown", "--json").json
    assert isinstance(listed, list)
    garbage = listed[0]["id"]

    by_id = rota("dead", "revive", garbage)
    assert by_id.code == 1
    assert f"not revived: {garbage}: the item names no queue" in by_id.err
    assert "rota dead purge ID" in by_id.err

    everything = rota("dead", "revive", "--all", "--json")
    assert (everything.code, everything.json) == (1, {"revived": 1})
    assert "not revived: 1 dead task: the item names no queue" in everything.err
    assert garbage in rota("dead", "ls", "--json").out
    assert dead_task not in rota("dead", "ls", "--json").out
    assert rota("dead", "revive", garbage, ROTA_TIERS='[["unknown"]]').code == 0


def test_purging_dead_tasks_needs_confirmation(rota: Rota, process: Rota, dead_task: str) -> None:
    refused = process("dead", "purge", "--all", "--reason", "SMTP")
    assert refused.code == 2
    assert "this would permanently delete 1 dead task: confirm it with --yes" in refused.err

    assert rota("dead", "purge", dead_task, "--yes").err == "rota: purged 1 task\n"
    assert rota("dead", "show", dead_task).code == 1


# Init


def test_init_writes_valid_files_and_never_overwrites(tmp_path: Path, server: Server, namespace: str) -> None:
    made = call(tmp_path, "init")
    assert made.code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rota.toml", "tasks.py"]

    done = call(tmp_path, "check", ROTA_REDIS_URL=server.url, ROTA_NAMESPACE=namespace)
    assert done.code == 0, done.err
    assert "2 queues, 2 tasks" in done.err

    again = call(tmp_path, "init")
    assert (again.code, again.err.count("already exists")) == (73, 2)


def test_output_pipe_closed_early_is_not_an_error(folder: Path) -> None:
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -P -m rota_supervisor config print | true; echo ${{PIPESTATUS[0]}}"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    assert (done.stdout, done.stderr) == ("0\n", "")
