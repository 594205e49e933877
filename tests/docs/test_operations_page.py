"""The calculations in docs/operations.md are correct, and the numbers and tables on the page match the code and the
files in deploy/.
"""

import ast
import json
import operator
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from math import factorial
from pathlib import Path
from resource import RLIMIT_AS, RLIMIT_FSIZE, RLIMIT_NOFILE
from typing import Final

import psutil
import pytest
import redis

from rota import Call, Client
from rota_supervisor.config.rules import MAX_WORKERS
from rota_supervisor.doctor.finding_kinds import FINDINGS
from rota_supervisor.doctor.machine_rules import (
    CLOCK_SECONDS,
    FLEET_BYTES,
    LOW_MEMORY_SHARE,
    MANY_WORKERS,
    MASTER_FILES,
    MEGABYTE,
    SMALL_SHARED_BYTES,
    WORKER_BYTES,
)
from rota_supervisor.doctor.server_rules import BEHIND_SECONDS
from rota_supervisor.doctor.server_rules import LOW_MEMORY_SHARE as LOW_SERVER_SHARE
from rota_supervisor.master.shell.run import NEEDED
from support.alert_cases import ALERTS
from support.examinations import MACHINE, PROCESS, WELL, ids_in, with_settings
from support.fleets import Fleets
from support.masters import ON_ONE_SERVER
from support.prometheus import promtool
from support.prose import ROOT, blocks, table
from support.servers import Server
from support.waiting import until

PATH: Final = ROOT / "docs/operations.md"
PAGE: Final = PATH.read_text(encoding="utf-8")
WORDS: Final = " ".join(PAGE.split())
_SHELLS: Final = ("sh", "bash", "console")
_CALCULATION: Final = re.compile(r"`([\d_.()*/+\-e ]+) = ([\d_.]+)`")
_OPERATORS: Final[dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def rows_of(name: str) -> list[list[str]]:
    """Return the rows of a table on the page, without the header."""
    return table(PATH, name)[1:]


def file(name: str) -> str:
    """Return the text of a file that the page shows."""
    [text] = [block.text for block in blocks(PATH) if (block.verb, block.argument) == ("file", name)]
    return text


def lines(name: str) -> dict[str, str]:
    """Return the settings in a file that the page shows, by name."""
    rows = [line.partition(" ") for line in file(name).splitlines() if not line.startswith("#")]
    return {name: value.strip("= ") for name, _, value in rows}


def test_every_command_on_the_operations_page_is_tested() -> None:
    assert [str(block) for block in blocks(PATH) if block.language in _SHELLS and not block.verb] == []


# Arithmetic


def value_of(node: ast.AST) -> Fraction:
    """Return the value of an arithmetic expression."""
    match node:
        case ast.Expression(body):
            return value_of(body)
        case ast.Constant(int() | float() as number):
            return Fraction(str(number))
        case ast.BinOp(left, operation, right):
            return _OPERATORS[type(operation)](value_of(left), value_of(right))
        case _:
            raise AssertionError(ast.dump(node))


@pytest.mark.parametrize(("expression", "result"), _CALCULATION.findall(WORDS))
def test_calculations_on_the_operations_page_are_correct(expression: str, result: str) -> None:
    digits = len(result.partition(".")[2])
    assert round(value_of(ast.parse(expression, mode="eval")), digits) == Fraction(result)


def mean_wait(workers: int, utilisation: float) -> float:
    """Return the mean wait for a free worker, as a multiple of the run time. It is calculated with the Erlang C
    formula.
    """
    load = workers * utilisation
    all_busy = load**workers / factorial(workers) / (1 - utilisation)
    share = all_busy / (sum(load**busy / factorial(busy) for busy in range(workers)) + all_busy)
    return share / (workers * (1 - utilisation))


def test_the_table_of_mean_waits_for_a_worker_matches_the_formula() -> None:
    shares = [
        int(percent) / 100 for percent in re.findall(r"(\d+) %", PAGE.partition("| workers |")[2].splitlines()[0])
    ]
    for workers, *waits in rows_of("waits"):
        assert list(map(float, waits)) == [round(mean_wait(int(workers), share), 2) for share in shares]


# The rules of the doctor


def test_the_memory_formula_on_the_operations_page_matches_the_doctor() -> None:
    fleet, worker = FLEET_BYTES // MEGABYTE, WORKER_BYTES // MEGABYTE
    assert f"memory = {fleet} MB + 2 * code + (workers + 1) * ({worker} MB + growth)" in PAGE
    assert f"/ {LOW_SERVER_SHARE:g}\n" in PAGE.partition("maxmemory = (backlog")[2].splitlines(keepends=True)[0]
    assert "three quarters" in FINDINGS["redis-memory-unlimited"].remedy
    assert "three quarters" in WORDS.partition("Choose `maxmemory`")[2]


def test_the_numbers_of_workers_on_the_operations_page_match_the_code() -> None:
    assert f"A node has at most {MAX_WORKERS} workers." in WORDS
    assert f"the doctor notes more than {MANY_WORKERS} for each processor." in WORDS


def limit_of(setting: str, where: str) -> str:
    """Return the value in a row of the page's table of limits."""
    [found] = [value for name, place, value, *_ in rows_of("limits") if setting in name and place in (where, "both")]
    return found


@pytest.mark.parametrize("workers", [1, 64, 500])
def test_doctor_accepts_the_limits_that_the_operations_page_recommends(workers: int) -> None:
    files, for_each = re.findall(r"\d+", limit_of("ulimit -n", "node"))[:2]
    for_all = int(re.findall(r"\d+", limit_of("ulimit -u", "node"))[0])

    def found(files: int, processes: int) -> list[str]:
        process = replace(PROCESS, open_files=files, processes=processes, user_threads=0, is_master=False)
        return [id_ for id_ in ids_in(replace(WELL, workers=workers, process=process)) if id_.endswith("-low")]

    enough = int(files) + int(for_each) * workers
    assert limit_of("ulimit -u", "node").startswith("twice the workers and ")
    assert found(enough, 2 * workers + for_all) == []
    assert found(enough - 1, 10_000) == ["open-files-low"]


def test_the_limits_of_a_master_on_the_operations_page_match_the_code() -> None:
    files, memory, written = (NEEDED[limit].least for limit in (RLIMIT_NOFILE, RLIMIT_AS, RLIMIT_FSIZE))
    assert f"below {files} a master does not start" in limit_of("ulimit -n", "node")
    assert limit_of("ulimit -v", "node") == f"none, or {memory} MB and more"
    assert limit_of("ulimit -f", "node") == f"none, or {written} MB and more"


def test_the_other_limits_on_the_operations_page_match_the_doctor() -> None:
    assert limit_of("/dev/shm", "node").startswith(f"more than {SMALL_SHARED_BYTES // MEGABYTE} MB")
    assert limit_of("clock", "node") == f"synchronised to {CLOCK_SECONDS:g} s"
    assert limit_of("`vm.overcommit_memory`", "node") == "0 or 1"
    for overcommit, findings in ((0, []), (1, []), (2, ["overcommit-strict"])):
        assert ids_in(replace(WELL, server=None, machine=replace(MACHINE, overcommit=overcommit))) == findings


def test_the_doctor_accepts_the_settings_of_the_kernel() -> None:
    kernel = lines("90-redis.conf")
    assert [name for name in kernel if not Path("/proc/sys", *name.split(".")).exists()] == []
    assert limit_of("vm.overcommit_memory", "server") == kernel["vm.overcommit_memory"]
    assert int(kernel["net.core.somaxconn"]) >= int(limit_of("net.core.somaxconn", "server").split()[0])
    action, place, *_, pages = file("huge-pages.conf").splitlines()[-1].split()
    assert (action, Path(place).exists()) == ("w", True)
    assert f"`{pages}`" == limit_of("transparent_hugepage", "node")
    machine = replace(MACHINE, overcommit=int(kernel["vm.overcommit_memory"]), huge_pages=pages)
    assert ids_in(replace(WELL, machine=machine)) == []


def test_the_server_settings_match_the_example_without_findings() -> None:
    shown = lines("redis.conf")
    assert [name.strip("`") for name, *_ in rows_of("server settings")] == list(shown)
    for name, value, *_ in rows_of("server settings"):
        assert value.strip("`") == shown[name.strip("`")] or name == "`maxmemory`"
    settings = {name: "" if value == '""' else value for name, value in shown.items()}
    info = {"aof_enabled": "1", "maxmemory_policy": settings["maxmemory-policy"]}
    assert ids_in(with_settings(settings, **info)) == []


def test_every_finding_that_the_page_names_exists() -> None:
    named = {name for rows in ("server settings", "limits") for *_, cell in rows_of(rows) for name in cell.split(", ")}
    assert {name.strip("`") for name in named - {""}} <= set(FINDINGS)


# Alerts


def test_each_alert_is_a_page_or_a_ticket_by_its_severity() -> None:
    rows = rows_of("alerts")
    for column, severity in ((1, "critical"), (2, "warning")):
        listed = [name for row in rows for name in re.findall(r"Rota\w+", row[column])]
        assert sorted(listed) == sorted(name for name, rule in ALERTS.items() if rule["labels"]["severity"] == severity)


def test_the_limits_outside_of_rota_on_the_page_match_the_doctor() -> None:
    limits = {what: limit for what, limit, _ in rows_of("surroundings")}
    assert limits["memory of Redis"] == f"{LOW_SERVER_SHARE:.0%} of `maxmemory`".replace("%", " %")
    assert limits["a replica"] == f"{BEHIND_SECONDS} s behind"
    assert limits["memory of a node or its control group"] == f"{LOW_MEMORY_SHARE:.0%}".replace("%", " %")


# Memory use of the server

STORED: Final = 20_000
TOLERANCE: Final = 0.1


@pytest.fixture
def logged(server: Server, tmp_path: Path) -> Iterator[Server]:
    """Yield an empty server that writes an append-only file. It runs the same program (Valkey or Redis) as `server`."""
    own = Server(server.binary, tmp_path, appendonly="yes", auto_aof_rewrite_percentage="0").start()
    yield own
    own.stop()


@pytest.mark.filterwarnings("ignore::rota.UnseenNamespace")
@pytest.mark.parametrize(("row", "argument", "delay"), [(0, 100, 0), (1, 1000, 0), (2, 100, 3600), (3, 1000, 3600)])
def test_a_stored_task_takes_as_many_bytes_as_the_page_says(
    logged: Server, row: int, argument: int, delay: float
) -> None:
    valkey, redis_7, log = map(number, rows_of("bytes")[row][1:])
    call = Call("resize", ["x" * argument], queue="images", delay=delay)
    with redis.Redis.from_url(logged.url) as asking, Client(logged.url, "shop") as client:
        client.enqueue(call)
        before = asking.info()
        client.enqueue_many([call] * STORED)
        after = asking.info()
    memory, written = ((after[field] - before[field]) / STORED for field in ("used_memory", "aof_current_size"))
    expected = valkey if "valkey_version" in after else redis_7
    assert memory == pytest.approx(expected, rel=TOLERANCE)
    assert written == pytest.approx(log, rel=TOLERANCE)


def number(cell: str) -> int:
    return int(cell.removesuffix(" B").replace(",", ""))


@pytest.mark.parametrize(("row", "argument"), [(0, 100), (1, 1000)])
def test_the_redis_memory_formula_covers_the_measured_sizes(row: int, argument: int) -> None:
    [fixed, factor] = re.findall(r"\(backlog \* \((\d+) B \+ ([\d.]+) \* arguments\)", PAGE)[0]
    assert int(fixed) + float(factor) * argument > max(map(number, rows_of("bytes")[row][1:3]))


# The processes of a fleet

POOLS: Final = {
    "plain": {"workers": 2, "queues": ["default"]},
    "io": {"workers": 1, "queues": ["io"], "concurrency": 9},
}


@ON_ONE_SERVER
def test_each_process_has_as_many_connections_as_the_page_says(fleets: Fleets, redis_client: "redis.Redis") -> None:
    fleet = fleets.start(tiers=[["default", "io"]], pools=POOLS)
    page = {process: int(connections) for process, connections, _ in rows_of("connections")}
    expected = {
        "master": page["master"],
        "worker": 2 * page["worker"] + page["worker with a `concurrency`"],
        "poller": page["poller"],
        "exporter": page["exporter"],
    }
    until(lambda: connections_by_role(redis_client) == expected, f"connections: {expected}")
    files = {process.split()[0]: int(re.findall(r"\d+", files)[0]) for process, _, files in rows_of("connections")}
    for role in ("worker", "poller", "exporter"):
        assert all(psutil.Process(pid).num_fds() <= files[role] for pid in fleet.pids(role, "ready"))
    assert files["master"] == MASTER_FILES
    assert psutil.Process(fleet.pid).num_fds() <= MASTER_FILES + len(fleet.processes())


def connections_by_role(asking: "redis.Redis") -> dict[str, int]:
    """Return how many connections the fleet has under each connection name."""
    roles = {"orders": "master"}
    names = [re.split("[:-]", each["name"])[1:2] for each in asking.client_list()]
    found = Counter(roles.get(name, name) for [name] in filter(None, names))
    return {role: found[role] for role in ("master", "worker", "poller", "exporter")}


# Queries

MINUTES: Final = 30
SERIES: Final = {
    "rota_tasks_enqueued_total{QUEUE}": "0+12000x30",
    "rota_task_runtime_seconds_sum{QUEUE}": "0+300x30",
    "rota_task_runtime_seconds_count{QUEUE}": "0+6000x30",
    "rota_worker_busy_seconds_total{POOL}": "0+45x30",
    "rota_worker_concurrency{POOL}": "1x30",
    "rota_queue_oldest_running_age_seconds{QUEUE}": "1x10 42 1x20",
}
RESULTS: Final = (
    ('{fleet="shop"}', 200),  # this series is counted once although both nodes export it
    ('{fleet="shop"}', 0.05),
    ('{fleet="shop", pool="default"}', 0.75),
    ('{fleet="shop", queue="images"}', 42),
)


def test_queries_on_the_operations_page_return_the_numbers_of_its_example(tmp_path: Path) -> None:
    [queries] = [block.text.split("\n\n") for block in blocks(PATH) if "[7d:5m]" in block.text]
    expected = [
        {"expr": query, "eval_time": f"{MINUTES}m", "exp_samples": [{"labels": labels, "value": value}]}
        for query, (labels, value) in zip(queries, RESULTS, strict=True)
    ]
    case = {"interval": "1m", "input_series": list(series()), "promql_expr_test": expected}
    (tmp_path / "queries.yml").write_text(json.dumps({"tests": [case]}))
    tested = promtool("test", "rules", str(tmp_path / "queries.yml"))
    assert tested.returncode == 0, tested.stdout + tested.stderr


def series() -> Iterator[dict[str, str]]:
    """Yield the series of two nodes."""
    for instance in ("a:9477", "b:9477"):
        labels = f'fleet="shop", instance="{instance}", '
        for name, values in SERIES.items():
            full = name.replace("QUEUE", labels + 'queue="images"').replace("POOL", labels + 'pool="default"')
            yield {"series": full, "values": values}
