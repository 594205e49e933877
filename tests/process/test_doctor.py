"""`rota doctor`: its exit codes, and its findings about real servers, limits, control groups and files."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import redis

from rota.protocol.nodes import NodeReport, heartbeat_of
from rota.protocol.store import Store
from rota.protocol.tiers import QueueShare, domain_of
from rota.server.address import parse_address
from rota.server.connection import Connection
from support.cgroups import group
from support.command_line import Ran, Rota, rota_in, write_configuration
from support.fleet_process import ROTA, environment
from support.servers import Server, free_port
from support.shifted_clock import ShiftedClock
from support.waiting import until

WELL: Final = {"appendonly": "yes", "save": "", "maxmemory": "1gb", "maxmemory_policy": "noeviction"}
ROOT_ONLY: Final = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
MEGABYTE: Final = 1 << 20
OF_MACHINE: Final = "redis-machine-"


@pytest.fixture
def rota(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Rota:
    return rota_in(tmp_path, monkeypatch, capsys)


@contextmanager
def running(like: Server, folder: Path, **options: str) -> Iterator[Server]:
    """During the block, run another server of the same kind with these settings."""
    place = folder / "server"
    place.mkdir(exist_ok=True)
    own = Server(like.binary, place, **WELL | options).start()
    try:
        yield own
    finally:
        own.stop()


def found_in(ran: Ran, prefix: str = "") -> dict[str, str]:
    """Return the text of each finding whose name begins with this prefix. Findings about the kernel of the machine are
    left out.
    """
    return {
        each["id"]: each["seen"]
        for each in ran.json["findings"]
        if each["id"].startswith(prefix) and not each["id"].startswith(OF_MACHINE)
    }


def outside(folder: Path, *arguments: str, prefix: tuple[str, ...] = (), **more: str) -> tuple[int, Any]:
    """Run `rota doctor` as a separate process. Returns its exit code and its JSON document."""
    done = subprocess.run(
        [*prefix, ROTA, "doctor", "--json", *arguments],
        cwd=folder,
        env=environment(folder, **more),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, json.loads(done.stdout)


# The server


class Case(NamedTuple):
    """Settings of a server, and the finding that `rota doctor` must report about these settings."""

    options: dict[str, str]
    name: str
    seen: str
    code: int


def test_doctor_has_no_findings_for_a_healthy_server(
    server: Server, namespace: str, tmp_path: Path, rota: Rota
) -> None:
    with running(server, tmp_path) as own:
        write_configuration(tmp_path, own, namespace)
        ran = rota("doctor", "--no-imports", "--json")
    assert found_in(ran, "redis-") == {}
    assert found_in(ran, "n") == {}
    facts = ran.json["facts"]["server"]
    assert facts["settings"]["appendonly"] == "yes"
    assert len(facts["round_trips"]) == 15
    assert abs(facts["clock_offset_seconds"]) < 1
    assert facts["is_local"] is True
    assert facts["uses_huge_pages"] in (True, False)
    assert facts["info"]["process_id"].isdecimal()
    assert ran.code == 0


@pytest.mark.parametrize(
    "case",
    [
        Case({"appendonly": "no"}, "redis-not-persistent", 'appendonly is no, and save is ""', 0),
        Case({"appendonly": "no", "save": "900 1"}, "redis-snapshots-only", "appendonly is no, and save is 900 1", 0),
        Case({"appendfsync": "no"}, "redis-never-syncs", "appendfsync is no", 0),
        Case({"timeout": "60"}, "redis-timeout", "timeout is 60", 0),
        Case({"tcp_keepalive": "0"}, "redis-keepalive-off", "tcp-keepalive is 0", 0),
        Case({"maxmemory": "600kb"}, "redis-memory-full", "of 1 MB (maxmemory)", 1),
        Case({"maxmemory": "0"}, "redis-memory-unlimited", "maxmemory is 0, and ", 0),
        Case({"maxmemory_policy": "allkeys-lru"}, "redis-evicts-keys", "maxmemory-policy is allkeys-lru", 78),
        Case(
            {"maxclients": "5"},
            "redis-clients-low",
            " of 5 connections (maxclients) are in use, but this fleet needs up to 6 more",
            0,
        ),
        Case(
            {"min_replicas_to_write": "1"},
            "redis-replicas-missing",
            "min-replicas-to-write is 1, but only 0 replicas",
            69,
        ),
    ],
    ids=lambda case: case.name,
)
def test_doctor_reports_an_unsuitable_server_setting(
    server: Server, namespace: str, tmp_path: Path, rota: Rota, case: Case
) -> None:
    with running(server, tmp_path, **case.options) as own:
        write_configuration(tmp_path, own, namespace)
        ran = rota("doctor", "--no-imports", "--json", ROTA_WORKERS="2")
        check = rota("check", "--no-imports")
    assert case.seen in found_in(ran, "redis-")[case.name]
    assert ran.code == case.code
    assert check.code == (0 if case.code == 1 else case.code)


def test_doctor_examines_a_server_without_the_commands_config_and_latency(
    server: Server, namespace: str, tmp_path: Path, rota: Rota
) -> None:
    own = Server(server.binary, tmp_path, **WELL | {"appendonly": "no"})
    own.options |= {"rename-command CONFIG": "", "rename-command LATENCY": ""}
    own.start()
    try:
        write_configuration(tmp_path, own, namespace)
        ran = rota("doctor", "--no-imports", "--json")
        text = rota("doctor", "--no-imports").out
    finally:
        own.stop()
    assert found_in(ran, "redis-") == {}
    unread = {each["what"]: each["why"] for each in ran.json["unread"]}
    settings = next(what for what in unread if what.startswith("the server's settings appendfsync, "))
    assert "unknown command" in unread[settings].lower()
    assert "unknown command" in unread["LATENCY LATEST of the server"].lower()
    assert "not read: LATENCY LATEST of the server: " in text
    assert ran.code == 0


def test_the_doctor_works_with_minimal_permissions(server: Server, namespace: str, tmp_path: Path, rota: Rota) -> None:
    with running(server, tmp_path) as own, redis.Redis(port=own.port) as client:
        client.execute_command(
            *("ACL", "SETUSER", "fleet", "on", ">pass", f"~{{{namespace}}}:*", "+@all"),
            *("-config", "-latency", "-@dangerous", "+info"),
        )
        write_configuration(tmp_path, own, namespace)
        ran = rota("doctor", "--no-imports", "--json", ROTA_REDIS_URL=f"redis://fleet:pass@127.0.0.1:{own.port}/0")
        check = rota("check", "--no-imports", ROTA_REDIS_URL=f"redis://fleet:pass@127.0.0.1:{own.port}/0")
    assert ran.code == check.code
    assert {each["what"].partition(" ")[0] for each in ran.json["unread"]} >= {"the", "LATENCY"}
    assert "pass" not in ran.out.replace("password", "")


def test_doctor_reports_a_forbidden_command_in_the_same_way_as_check(
    server: Server, namespace: str, tmp_path: Path, rota: Rota
) -> None:
    with running(server, tmp_path) as own, redis.Redis(port=own.port) as client:
        client.execute_command("ACL", "SETUSER", "fleet", "on", ">pass", f"~{{{namespace}}}:*", "+@all", "-zadd")
        write_configuration(tmp_path, own, namespace)
        url = f"redis://fleet:pass@127.0.0.1:{own.port}/0"
        ran = rota("doctor", "--no-imports", "--json", ROTA_REDIS_URL=url)
    assert "ZADD: ACL SETUSER fleet +zadd" in found_in(ran)["redis-unfit"]
    assert ran.code == 78


def test_the_doctor_works_without_permission_to_read_the_time(
    server: Server, namespace: str, tmp_path: Path, rota: Rota
) -> None:
    with running(server, tmp_path) as own, redis.Redis(port=own.port) as client:
        client.execute_command("ACL", "SETUSER", "fleet", "on", ">pass", "~*", "+@all", "-time", "-info")
        write_configuration(tmp_path, own, namespace)
        url = f"redis://fleet:pass@127.0.0.1:{own.port}/0"
        ran = rota("doctor", "--no-imports", "--json", ROTA_REDIS_URL=url)
    assert "TIME" in found_in(ran)["redis-unfit"]
    assert {"TIME of the server", "INFO of the server"} <= {each["what"] for each in ran.json["unread"]}
    assert ran.json["facts"]["server"]["settings"]["maxmemory-policy"] == "noeviction"
    assert ran.code == 78


def test_doctor_reports_latency_events_of_the_server(
    server: Server, namespace: str, tmp_path: Path, rota: Rota
) -> None:
    with running(server, tmp_path, latency_monitor_threshold="10") as own, redis.Redis(port=own.port) as client:
        client.execute_command("DEBUG", "SLEEP", "0.2")
        until(lambda: client.execute_command("LATENCY", "LATEST"))
        write_configuration(tmp_path, own, namespace)
        ran = rota("doctor", "--no-imports", "--json")
    assert found_in(ran)["redis-latency-events"].startswith("command took 20")


def test_doctor_reports_a_replica_together_with_its_server_facts(
    server: Server, namespace: str, tmp_path: Path, rota: Rota
) -> None:
    with running(server, tmp_path, replicaof=f"127.0.0.1 {free_port()}") as own:
        write_configuration(tmp_path, own, namespace)
        ran = rota("doctor", "--no-imports", "--json")
    assert "is a replica and accepts no writes" in found_in(ran)["redis-unreachable"]
    assert ran.json["facts"]["server"]["info"]["role"] == "slave"
    assert ran.code == 69


def test_doctor_reports_a_server_that_cannot_save(server: Server, namespace: str, tmp_path: Path, rota: Rota) -> None:
    (folder := tmp_path / "data").mkdir()
    options = {"appendonly": "no", "save": "900 1", "enable_protected_configs": "local"}
    with running(server, tmp_path, **options) as own, redis.Redis(port=own.port) as client:
        client.config_set("dir", str(folder))
        folder.rmdir()
        client.set("a", "b")
        client.bgsave()
        until(lambda: client.info("persistence")["rdb_last_bgsave_status"] == "err")
        write_configuration(tmp_path, own, namespace)
        ran = rota("doctor", "--no-imports", "--json")
    assert found_in(ran)["redis-save-failed"] == "the last snapshot failed (rdb_last_bgsave_status: err)"
    assert "refuses writes: MISCONF" in found_in(ran)["redis-unreachable"]


def test_doctor_reports_a_lost_replica(server: Server, namespace: str, tmp_path: Path, rota: Rota) -> None:
    (folder := tmp_path / "replica").mkdir()
    with running(server, tmp_path, repl_diskless_sync_delay="0") as own:
        replica = Server(server.binary, folder, replicaof=f"127.0.0.1 {own.port}").start()
        with redis.Redis(port=own.port) as client:
            until(lambda: client.info("replication").get("slave0", {}).get("state") == "online")
            write_configuration(tmp_path, own, namespace)
            well = rota("doctor", "--no-imports", "--json")
            os.kill(replica.pid, 19)  # sends SIGSTOP, so that the replica neither reads nor acknowledges any data
            until(lambda: client.info("replication")["slave0"]["lag"] > 10, seconds=40)
            ran = rota("doctor", "--no-imports", "--json")
        replica.stop()
    assert "redis-replica-behind" not in found_in(well)
    assert found_in(ran)["redis-replica-behind"].startswith(f"the replica 127.0.0.1:{replica.port} is online, 1")


def test_doctor_compares_the_clock_of_the_server_with_the_machines(
    server: Server, namespace: str, tmp_path: Path, rota: Rota
) -> None:
    clock = ShiftedClock(tmp_path)
    clock.shift(-3630)
    own = Server(server.binary, tmp_path, **WELL)
    own.environment = clock.environment
    own.start()
    try:
        write_configuration(tmp_path, own, namespace)
        ran = rota("doctor", "--no-imports", "--json")
    finally:
        own.stop()
    found = found_in(ran)["clock-offset"]
    assert re.fullmatch(r"the clock of this machine is 1 h (\d+ s )?ahead of that of Redis", found)


def test_doctor_exits_with_69_if_the_server_is_unreachable(tmp_path: Path, rota: Rota) -> None:
    (tmp_path / "rota.toml").write_text(f'redis_url = "redis://u:s3cr3t@127.0.0.1:{free_port()}/0"\n')
    ran = rota("doctor", "--no-imports", "--json")
    assert list(found_in(ran, "redis-")) == ["redis-unreachable"]
    assert (ran.code, "s3cr3t" in ran.out) == (69, False)


# Heartbeats of nodes in a namespace


def announce(server: Server, namespace: str, name: str, tasks: list[str], *queues: str) -> None:
    """Publish a heartbeat of a node with this name, these tasks and these queues."""
    tiers = [domain_of([QueueShare(queue)], queues) for queue in queues]
    report = NodeReport("running", "0.1.0", workers=1)
    heartbeat = heartbeat_of(7, {"default": tiers}, report, 60.0, tasks)
    connection = Connection(parse_address(server.url))
    connection.run(Store(namespace).announce(name, heartbeat, 60_000, list(queues)))
    connection.close()


def test_doctor_reports_two_applications_in_one_namespace(
    server: Server, namespace: str, tmp_path: Path, rota: Rota
) -> None:
    write_configuration(tmp_path, server, namespace)
    announce(server, namespace, "web-1.aa", ["resize"], "images", "default")
    announce(server, namespace, "web-2.bb", ["resize"], "images", "default")
    assert found_in(rota("doctor", "--no-imports", "--json"), "n") == {}
    announce(server, namespace, "mail-1.cc", ["send"], "mail", "default")
    ran = rota("doctor", "--no-imports", "--json")
    assert found_in(ran)["namespace-shared"].endswith("have no task in common, and both serve default")
    assert ran.code == 1


def test_doctor_compares_local_tasks_with_those_of_the_nodes(
    server: Server, namespace: str, tmp_path: Path, rota: Rota
) -> None:
    (tmp_path / "tasks.py").write_text("import rota\n@rota.task\ndef send(): ...\n")
    (tmp_path / "rota.toml").write_text(f'redis_url = "{server.url}"\nnamespace = "{namespace}"\nimports = ["tasks"]\n')
    announce(server, namespace, "web-1.aa", ["resize"], "images", "default")
    assert "the modules here" in found_in(rota("doctor", "--json"))["namespace-shared"]


def test_doctor_reports_accepted_tasks_that_are_missing(
    server: Server, namespace: str, tmp_path: Path, rota: Rota
) -> None:
    write_configuration(tmp_path, server, namespace)
    assert rota("task", "enqueue", "a", "--queue", "default").code == 0
    with redis.Redis(port=server.port) as client:
        client.delete(f"{{{namespace}}}:tasks")
    ran = rota("doctor", "--no-imports", "--json")
    assert found_in(ran)["tasks-missing"] == "accepted tasks are neither live nor ended: 1"
    assert ran.code == 1


# The configuration and the code, which `rota check` checks too


def test_doctor_reports_every_fault_of_the_configuration(tmp_path: Path, rota: Rota) -> None:
    (tmp_path / "rota.toml").write_text('wokers = 2\n[limits]\ndrain_seconds = "x"\n')
    ran = rota("doctor", "--json")
    faults = [each["seen"] for each in ran.json["findings"] if each["id"] == "configuration-invalid"]
    assert len(faults) == 2
    assert 'did you mean "workers"?' in faults[0] + faults[1]
    assert ran.code == 78
    assert "the server" in [each["what"] for each in ran.json["unread"]]


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("import nothing_of_this_name\n", "nothing_of_this_name"),
        ('import rota\n@rota.task(queue="elsewhere")\ndef a(): ...\n', "elsewhere"),
    ],
)
def test_doctor_reports_code_that_cannot_be_used(tmp_path: Path, rota: Rota, text: str, seen: str) -> None:
    (tmp_path / "tasks.py").write_text(text)
    ran = rota("doctor", "--json", ROTA_IMPORTS='["tasks"]', ROTA_REDIS_URL=f"redis://127.0.0.1:{free_port()}/0")
    assert seen in found_in(ran)["code-unusable"]
    assert ran.code == 78


def test_doctor_reports_a_folder_without_configuration_and_modules(tmp_path: Path, rota: Rota) -> None:
    shutil.rmtree(tmp_path)
    tmp_path.mkdir()
    ran = rota("doctor", "--json")
    assert "imports names no module" in found_in(ran)["code-unusable"]


def test_doctor_reports_warnings_of_the_configuration_and_certificate(
    server: Server, namespace: str, tmp_path: Path, rota: Rota
) -> None:
    (tmp_path / "no.pem").write_text("x")
    (tmp_path / "rota.toml").write_text(
        f'redis_url = "{server.url}"\nnamespace = "{namespace}"\nworkers = 0\n'
        '[http]\ntls_cert = "no.pem"\ntls_key = "no.pem"\n'
    )
    ran = rota("doctor", "--json")
    texts = [each["seen"] for each in ran.json["findings"] if each["id"] == "configuration-warning"]
    assert any("no pool has workers" in text for text in texts)
    assert any("no modules to import" in text for text in texts)
    assert "expected a certificate and its key" in found_in(ran)["http-certificate"]
    assert ran.code == 78


def test_doctor_with_strict_exits_with_1_for_a_warning(
    server: Server, namespace: str, tmp_path: Path, rota: Rota
) -> None:
    with running(server, tmp_path, timeout="60") as own:
        write_configuration(tmp_path, own, namespace)
        assert rota("doctor", "--no-imports").code == 0
        assert rota("doctor", "--no-imports", "--strict").code == 1


def test_doctor_prints_each_finding_with_its_meaning_and_a_summary(
    server: Server, namespace: str, tmp_path: Path, rota: Rota
) -> None:
    with running(server, tmp_path, timeout="60") as own:
        write_configuration(tmp_path, own, namespace)
        ran = rota("doctor", "--no-imports")
    assert "warning:  redis-timeout: timeout is 60\n          The server closes connections" in ran.out
    assert "          To do: Set timeout 0 in the server's configuration" in ran.out
    assert re.fullmatch(r"[1-9] warnings?(, [1-9] notes?)?", ran.out.splitlines()[-1])
    assert max(map(len, ran.out.splitlines())) <= 110


# Limits of the kernel


@pytest.fixture
def folder(server: Server, namespace: str, tmp_path: Path) -> Path:
    write_configuration(tmp_path, server, namespace)
    return tmp_path


def test_doctor_reports_a_low_limit_on_open_files(folder: Path) -> None:
    shell = ("sh", "-c", 'ulimit -n 40 && exec "$@"', "sh")
    code, document = outside(folder, "--no-imports", prefix=shell)
    (seen,) = [each["seen"] for each in document["findings"] if each["id"] == "limit-too-low"]
    assert "the limit on open files is 40 descriptors, but a fleet needs 64" in seen
    assert code == 78


@ROOT_ONLY
def test_doctor_reports_a_small_or_missing_dev_shm(folder: Path) -> None:
    def seen_with(mounts: str) -> dict[str, str]:
        prefix = ("unshare", "-m", "sh", "-c", f'mount --make-rprivate / && {mounts} && exec "$@"', "sh")
        _, document = outside(folder, "--no-imports", prefix=prefix)
        return {each["id"]: each["seen"] for each in document["findings"] if each["id"].startswith("shm-")}

    small = "mount -t tmpfs -o size=64m tmpfs /dev/shm"
    assert seen_with(small) == {"shm-small": "/dev/shm has 64 MB"}
    full = f"{small} && head -c 63m /dev/zero > /dev/shm/left"
    assert seen_with(full) == {"shm-full": "1 MB of 64 MB are free in /dev/shm"}
    assert seen_with("mount -t tmpfs tmpfs /dev") == {"shm-unusable": "/dev/shm does not exist"}


@ROOT_ONLY
def test_doctor_compares_a_memory_limit_with_the_number_of_workers(folder: Path) -> None:
    with group("memory") as made:
        made.set("memory.max" if made.is_v2 else "memory.limit_in_bytes", 400 * MEGABYTE)
        code, document = outside(folder, "--no-imports", prefix=_into(made.folder), ROTA_WORKERS="100")
    (seen,) = [each["seen"] for each in document["findings"] if each["id"] == "memory-too-small"]
    assert seen == "400 MB of memory in the control group, and 100 workers need about 660 MB"
    assert document["facts"]["process"]["cgroup"]["memory_used"] < 400 * MEGABYTE
    assert code == 1


@ROOT_ONLY
def test_doctor_compares_a_cpu_limit_with_the_default_number_of_workers(folder: Path) -> None:
    with group("cpu") as made:
        if made.is_v2:
            made.set("cpu.max", "50000 100000")
        else:
            made.set("cpu.cfs_quota_us", 50_000)
        _, document = outside(folder, "--no-imports", prefix=_into(made.folder))
    assert document["facts"]["process"]["cgroup"]["cpu_limit"] == 0.5
    found = {each["id"]: each["seen"] for each in document["findings"]}
    processors = os.cpu_count()
    expected = f"{processors} workers, and 0.5 of {processors} processors"
    assert processors == 1 or found["cpu-workers-by-machine"] == expected


@ROOT_ONLY
def test_doctor_compares_a_process_limit_with_the_number_of_workers(folder: Path) -> None:
    with group("pids") as made:
        made.set("pids.max", 30)
        _, document = outside(folder, "--no-imports", prefix=_into(made.folder), ROTA_WORKERS="40")
    (seen,) = [each["seen"] for each in document["findings"] if each["id"] == "processes-exhausted"]
    assert seen.startswith("the limit on processes of the control group is 30, and 2")


def _into(made: Path) -> tuple[str, ...]:
    """Return the first words of a command line that runs a program in this control group."""
    return ("sh", "-c", f'echo $$ > {made}/cgroup.procs && exec "$@"', "sh")


# The archive that is written when there is no fleet


def test_an_archive_never_overwrites_a_file(tmp_path: Path, rota: Rota) -> None:
    (tmp_path / "a.tar.gz").write_text("mine")
    ran = rota("doctor", "--no-imports", "--bundle", "a.tar.gz")
    assert (ran.code, (tmp_path / "a.tar.gz").read_text()) == (73, "mine")
    assert "a.tar.gz already exists: nothing was written" in ran.err


def test_doctor_exits_with_73_if_the_folder_of_the_archive_is_missing(tmp_path: Path, rota: Rota) -> None:
    (tmp_path / "rota.toml").write_text(f'redis_url = "redis://127.0.0.1:{free_port()}/0"\n')
    ran = rota("doctor", "--no-imports", "--bundle", "none/a.tar.gz")
    assert ran.code == 73
    assert "none/a.tar.gz cannot be written: No such file or directory" in ran.err


def test_doctor_refuses_a_log_if_no_archive_is_written(tmp_path: Path, rota: Rota) -> None:
    (tmp_path / "a.log").write_text("")
    ran = rota("doctor", "--log", "a.log")
    assert (ran.code, "--log adds a log to the archive that --bundle writes: also use --bundle" in ran.err) == (2, True)


def test_the_unknown_command_diagnose_suggests_doctor(rota: Rota) -> None:
    ran = rota("diagnose")
    assert ran.code == 2
    assert "see `rota doctor --help`" in ran.err
