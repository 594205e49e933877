"""The second part of a hundred mistakes: mistakes on the command line and in rota.toml, and the messages about these
mistakes. Each row has a command line, or a configuration for `rota check`, and the expected exit code. It also has
words that the command must print to standard error: the problem, its place, and the remedy.
"""

import json
import shlex
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from rota.tasks.registry import default_registry
from support.command_line import Rota, rota_in
from support.servers import Server

TASKS = "import rota\n\n@rota.task\ndef greet(name): ...\n"
CONFIG = 'redis_url = "redis://127.0.0.1:1/0"\nimports = ["tasks"]\ntiers = [["high"], ["default"]]\n'
Row = tuple[Any, ...]

TYPED: list[Row] = [
    ("queu ls", 2, "'queu'", 'did you mean "queue"?'),
    ("queue puase mail", 2, "'puase'", 'did you mean "pause"?'),
    ("queue list", 2, "'list'", 'did you mean "ls"?'),
    ("worker", 2, "'worker'", "see `rota run --help`"),
    ("beat", 2, "'beat'", "see `rota cron ls --help`"),
    ("purge", 2, "'purge'", "see `rota queue purge --help`"),
    ("retry x", 2, "'retry'", "see `rota dead revive --help`"),
    ("enqueue greet", 2, "'enqueue'", "see `rota task enqueue --help`"),
    ("fly", 2, "No such command 'fly': there are init, run, ", "see `rota --help`"),
    ("help", 2, "'help'", "see `rota --help`"),
    ("dead retry x", 2, "'retry'", "there are ls, purge, revive, show"),
    ("run -A tasks", 2, "'-A'", "Name only the modules"),
    ("run --concurrency 4", 2, "'--concurrency'", "-w 4"),
    ("run --loglevel info", 2, "'--loglevel'", "[log] level"),
    ("check", 69, "is not reachable", "rota: everything else can be used: 2 queues, 1 task\n"),
    ("init --force", 2, "'--force'. `rota init` does not overwrite files: move the existing ones away first"),
    ("stop --force", 2, "'--force'. Write --now (see `rota stop --help`)"),
    ("queue purge mail --force", 2, "'--force'. Write --yes"),
    ("check --force", 2, "'--force' (see `rota check --help`)"),
    (
        "health --url http://x",
        2,
        (
            "'--url'. This command queries the address in [http] listen; to query another node, "
            "use `rota top --once --url URL`"
        ),
    ),
    ("run -w", 2, "'-w' requires an argument (see `rota run --help`)"),
    ("top --url", 2, "'--url' requires an argument (see `rota top --help`)"),
    ("queue explain -n x", 2, "'-n': expected a whole number from 1 to 1000, got 'x'"),
    ("cron ls --next 0", 2, "'--next': expected a whole number from 1 to 1000, got '0'"),
    ("dead ls --limit 0", 2, "'--limit': expected a whole number, 1 or more, got '0'"),
    ("demo --seconds x", 2, "'--seconds': expected a number from ", " to 3600, got 'x'"),
    ("completion", 2, "Missing argument SHELL: bash, zsh or fish (see `rota completion --help`)"),
    ("config show", 2, "'show': the only command is print"),
    ("check --jsno", 2, "'--jsno'", "--json"),
    ("-c nosuch.toml check", 78, "nosuch.toml"),
    ("run -w many", 2, "POOL=NUMBER", "'many'"),
    ("run --pool mail", 78, "--pool mail", "no such pool"),
    ("queue pause 'a b'", 2, "queue name 'a b'", "characters"),
    ("queue pause tenant-*", 2, "pattern", "a single queue"),
    ("task ls mail --state pending", 2, "'pending'", "'ready'"),
    ("task show {x}", 2, "id '{x}'", "characters"),
    ("task enqueue great you", 2, '"great"', 'did you mean "greet"?', "--queue"),
    ("task enqueue greet", 2, "greet(name)", "'name'"),
    ("task enqueue grete you", 2, 'did you mean "greet"? To enqueue it for another fleet, use --queue QUEUE'),
    ("task enqueue greet you --dely 5", 2, "'--dely'", 'did you mean "--delay"?'),
    ("task enqueue greet you --delay 1x", 2, "--delay", "'1x'", "s, m, h or d"),
    ("task enqueue greet you --delay -5", 2, "--delay", "'-5'", "90 or 1.5h; a duration cannot be negative"),
    ("task enqueue greet you --delay 5 --at 2030-01-01T09:00Z", 2, "use either --delay or --at, not both"),
    ("task enqueue greet you --at tomorrow", 2, "--at", "'tomorrow'", "2027-01-31T09:00+01:00"),
    ("task enqueue greet you --at 2030-01-01", 2, "no time zone", "Z for UTC"),
    ("task enqueue greet you --retries -1", 2, "--retries", "-1"),
    ("task enqueue greet you --expires 0", 2, "--expires must be more than 0 seconds"),
    ("task enqueue greet you --timeout 5", 2, "--timeout", "add --wait"),
    ("task enqueue greet you --kwargs [1]", 2, "--kwargs", "JSON object"),
    ("task cancel x --kill-after -1", 2, "--kill-after", "a duration cannot be negative"),
    (
        "task enqueue greet you",
        69,
        "Redis at redis://127.0.0.1:1/0 is not reachable: Connection refused: start the server",
    ),
    ("queue ls", 69, "is not reachable", "redis_url"),
    ("status", 69, "rota run"),
    ("dead revive", 2, "pass ids, or use --all"),
    ("completion csh", 2, "'csh'", "'bash'"),
]

CONFIGURED: list[Row] = [
    ('imports = ["tasks.py"]', "imports[0]", '"tasks.py"', 'did you mean "tasks"?'),
    ('imports = ["shop/tasks.py"]', "imports[0]", 'did you mean "shop.tasks"?'),
    ('imports = "tasks"', "imports", "a list of texts"),
    ("worker = 3", "worker", 'did you mean "workers"?'),
    ('workers = "3"', "workers", "a whole number", '"3"'),
    ('[metrics]\nlisten = ":9477"', "metrics.listen", 'did you mean "http.listen"?'),
    ("drain_seconds = 5", "drain_seconds", 'did you mean "limits.drain_seconds"?'),
    ("[limits]\ntime_limit = 5", "limits.time_limit", 'did you mean "time_limit_seconds"?'),
    ('broker_url = "redis://h"', "broker_url", 'did you mean "redis_url"?'),
    ('redis_url = "localhost:6379"', "redis_url", "begins with redis://"),
    ('tiers = ["high"]', "tiers[0]", "a list of texts"),
    ('tiers = [["mail"]]\n[queues.mial]\nweight = 3', "queues.mial", "no tier", 'did you mean "mail"?'),
    ('[queues.default]\nrate = "5 per minute"', "queues.default.rate", '"100/m"'),
    ('[queues.default]\ncondition = "office"', "queues.default.condition", "add [conditions.office]"),
    ("[conditions.office]", "conditions.office", "hours, as in", "or lua"),
    ('[conditions.office]\nhours = "9-17"', "conditions.office.hours", 'times as in "08:00-18:00"'),
    ('[conditions.office]\nlua = "return"', "conditions.office.lua", "line 1, character 7"),
    ('[schedules.night]\ntask = "greet"', "schedules.night", "cron", "every"),
    ('[schedules.night]\ntask = "greet"\ncron = "0 3 * *"', "schedules.night.cron", "4 fields"),
    ('[schedules.night]\ntask = "greet"\nevery = "5m"', "schedules.night.every", "a number", '"5m"'),
    ("workers = 2\n[pools.mail]\nworkers = 1", "workers", "set either workers or [pools]"),
    ("[lease]\nseconds = 5\nrenew_seconds = 5", "lease.renew_seconds", "less than lease.seconds"),
    ('[http]\nlisten = "9477"', "http.listen", "127.0.0.1:9477"),
    ('[log]\nlevel = "verbose"', "log.level", '"info"', '"verbose"'),
    ('durability = "fsync"', "durability", '"waitaof"'),
    ("workers =", "rota.toml", "TOML"),
]

IMPORTED: list[Row] = [
    ("import rota\n\n@rota.task(max_retries=3)\ndef f(): ...", "'max_retries'", "retries=", "tasks.py:3)"),
    ("import rota\n\nclass Mailer:\n    @rota.task\n    def send(self): ...", "is a method", "tasks.py:4)"),
    ("import nosuch", "No module named 'nosuch'", "tasks.py:1)"),
    ("def f(:", "SyntaxError", "tasks.py:1)"),
]


@pytest.fixture(name="run_rota")
def _run_rota(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Rota:
    """Return a function that runs `rota` in a folder with a configuration and a task. The returned function returns the
    exit code, standard output and standard error.
    """
    monkeypatch.setattr(default_registry, "_tasks", {})
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "tasks", raising=False)
    (tmp_path / "tasks.py").write_text(TASKS)
    (tmp_path / "rota.toml").write_text(CONFIG)
    return rota_in(tmp_path, monkeypatch, capsys)


@pytest.mark.parametrize("row", TYPED, ids=lambda row: f"rota {row[0]}")
def test_typing_mistakes_are_explained(run_rota: Rota, row: Row) -> None:
    typed, expected, *words = row
    code, out, err = run_rota(*shlex.split(typed))
    assert (code, out) == (expected, ""), err
    assert all(word in err for word in words), err


@pytest.mark.parametrize("row", CONFIGURED, ids=lambda row: row[0].replace("\n", " "))
def test_configuration_mistakes_are_explained(run_rota: Rota, row: Row) -> None:
    text, *words = row
    Path("rota.toml").write_text(text)
    code, _, err = run_rota("check")
    assert code == 78, err
    assert all(word in err for word in words), err


@pytest.mark.parametrize("row", IMPORTED, ids=lambda row: row[0].replace("\n", " "))
def test_import_errors_are_explained(run_rota: Rota, row: Row) -> None:
    text, *words = row
    Path("tasks.py").write_text(text)
    code, _, err = run_rota("check")
    assert code == 78, err
    assert all(word in err for word in ("module tasks cannot be imported", *words)), err


class _NoFleet(BaseHTTPRequestHandler):
    """A web server that is not part of any fleet."""

    def do_GET(self) -> None:
        self.send_error(404)

    def log_message(self, *_: object) -> None: ...


def test_rota_top_reports_another_web_server_without_printing_its_page(run_rota: Rota) -> None:
    with HTTPServer(("127.0.0.1", 0), _NoFleet) as other:
        thread = threading.Thread(target=other.handle_request)
        thread.start()
        url = f"http://127.0.0.1:{other.server_port}"
        code, _, err = run_rota("top", "--once", "--url", url)
        thread.join()
    said = f"rota: error: {url}/status.json returned 404: this server is not a node of a Rota fleet\n"
    assert (code, err) == (69, said)


def test_enqueue_without_a_configuration_is_explained(run_rota: Rota) -> None:
    Path("rota.toml").unlink()
    code, _, err = run_rota("task", "enqueue", "greet", "you")
    assert code == 2
    assert "there is no rota.toml in this folder, so no task is known: use -c FILE, or --queue QUEUE to enqueue" in err


def test_unreachable_server_error_mentions_the_missing_configuration(
    run_rota: Rota,
) -> None:
    Path("rota.toml").unlink()
    enqueue = ("task", "enqueue", "greet", "you", "--queue", "mail")
    code, _, err = run_rota(*enqueue, ROTA_REDIS_URL="redis://127.0.0.1:1/0")
    assert code == 69
    assert (
        err.splitlines()[-1]
        == "rota: error: there is no rota.toml in this folder: name it with -c FILE if it is elsewhere"
    )


@pytest.mark.parametrize(
    ("seconds", "expected"), [("7", ""), ("x", "expected seconds, more than 0, got "), ("0", "expected seconds")]
)
def test_the_environment_variable_of_the_client_timeout_is_validated(
    run_rota: Rota, seconds: str, expected: str
) -> None:
    code, _, err = run_rota("config", "print", ROTA_TIMEOUT_SECONDS=seconds)
    assert code == (78 if expected else 0)
    assert f"ROTA_TIMEOUT_SECONDS: {expected}" in err if expected else not err


def test_errors_are_json_if_json_is_requested(run_rota: Rota) -> None:
    code, out, err = run_rota("--json", "queue", "ls")
    refusal = json.loads(err.splitlines()[-1])
    assert (code, out, refusal["code"]) == (69, "", 69)
    assert "is not reachable" in refusal["errors"][0]
    assert json.loads(run_rota("queu", "--json")[2])["code"] == 2


@pytest.mark.parametrize("group", [(), ("queue",), ("task",)])
def test_command_group_without_a_command_shows_its_help(run_rota: Rota, group: tuple[str, ...]) -> None:
    code, out, err = run_rota(*group)
    assert (code, err) == (0, "")
    assert f"Usage: {' '.join(('rota', *group))} [OPTIONS] COMMAND" in out


def test_completion_and_man_page_know_every_command(run_rota: Rota) -> None:
    assert "_ROTA_COMPLETE=zsh_complete" in run_rota("completion", "zsh")[1]
    code, page, _ = run_rota("man")
    assert code == 0
    assert ".SS rota task enqueue [OPTIONS] NAME [ARGS]..." in page
    assert r".B \-\-kill\-after DURATION" in page


def test_unknown_queues_and_missing_tasks_are_reported(run_rota: Rota, server: Server, namespace: str) -> None:
    config = CONFIG.replace("redis://127.0.0.1:1/0", server.url).replace("high", "mail")
    Path("rota.toml").write_text(f'namespace = "{namespace}"\n{config}')
    unknown = 'the queue "mial" is not known, did you mean "mail"?'

    code, _, err = run_rota("queue", "pause", "mial")
    assert code == 0
    assert unknown in err
    assert 'queue "mial" is paused' in err
    for typed in (["queue", "ls", "mial"], ["task", "ls", "mial"], ["queue", "resume", "mial"]):
        assert unknown in run_rota(*typed)[2]
    assert 'no task is ready in queue "mail"' in run_rota("task", "ls", "mail")[2]
    assert "is not known" not in run_rota("queue", "pause", "mail")[2]

    Path("tasks.py").write_text("def greet(): ...")
    code, _, err = run_rota("check")
    assert code == 0
    assert "no module of imports (tasks) declares a task" in err


def test_enqueue_options_reach_the_task(run_rota: Rota, server: Server, namespace: str) -> None:
    Path("rota.toml").write_text(CONFIG.replace("redis://127.0.0.1:1/0", server.url) + f'namespace = "{namespace}"\n')
    once = ("task", "enqueue", "greet", "you", "--unique", "--retries", "3", "--expires", "1h")
    assert run_rota(*once, "--delay", "1m", "--id", "one")[0] == 0
    code, _, err = run_rota(*once, "--at", "2030-01-31T09:00+01:00")
    assert code == 0
    assert "a task with the id one is already live" in err
    shown = json.loads(run_rota("task", "show", "one", "--json")[1])
    assert shown["state"] == "scheduled"
