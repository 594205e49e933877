"""Names, arguments and errors that contain control characters, escape sequences and markup. Such text must never
falsify the output of the fleet.
"""

import json

import pytest
import redis

from rota.display_text import printable
from rota.protocol.keys import Keys
from support.fleets import Fleets, RunningFleet
from support.hostile import HOSTILE, VALID, unfit_in
from support.masters import ON_ONE_SERVER
from support.waiting import until

TASKS = f"""
import json, logging, os, sys
import rota

HOSTILE = json.loads({json.dumps(json.dumps(HOSTILE))})
Failed = type(HOSTILE.replace("\\0", "").encode(errors="ignore").decode(), (ValueError,), {{}})

@rota.task(retries=0)
def shout(argument):
    logging.getLogger("other").error("argument %s", argument)
    raise Failed(argument + HOSTILE) from OSError(HOSTILE)
"""
COMMANDS = (
    ("queue", "ls"),
    ("dead", "ls"),
    ("dead", "show", "told"),
    ("task", "show", "told"),
    ("task", "ls"),
    ("task", "ls", "--state", "dead"),
    ("task", "ls", "\x1b[2J"),
    ("status",),
    ("audit",),
    ("config", "print", "--origin"),
    ("health", "--ready"),
    ("reload", "--dry-run"),
    ("dead", "show", HOSTILE.replace("\0", "").encode(errors="ignore").decode()),
    ("task", "show", "\x1b[2J"),
    ("task", "enqueue", "\x1b[2J\u202e"),
    ("queue", "pause", "\x9b2J"),
    ("scale", "\x1b[2J", "\x1b"),
    ("-c", "\x1b]0;x\x07", "status"),
    ("run", "-w", "\u2028=\x1b"),
    ("run", "--pool", "\x1b[2J"),
    ("\x1b[2J",),
    ("status", "--\x1b[2J"),
)

pytestmark = ON_ONE_SERVER


def hostile_fleet(fleets: Fleets, redis_client: "redis.Redis", log_format: str = "json") -> RunningFleet:
    """Return a fleet with hostile text in three places: the error of a dead task, an invalid item in a queue, and the
    name of a queue.
    """
    fleet = fleets.make(log={"format": log_format})
    (fleet.folder / "tasks.py").write_text(TASKS)
    fleet.start()
    keys = Keys(fleet.namespace)
    redis_client.sadd(keys.queues, VALID)
    redis_client.rpush(keys.ready_lane(VALID), "entry")
    redis_client.rpush(keys.ready_lane("default"), f'["{VALID}", "default", {VALID}')
    fleet.client.enqueue("shout", args=[VALID], queue="default", id="told")
    until(lambda: fleet.metrics().total("rota_queue_dead_tasks") == 2, "both are dead")
    return fleet


@pytest.mark.parametrize("log_format", ["json", "console", "logfmt"])
def test_logs_and_endpoints_escape_pushed_control_codes(
    fleets: Fleets, redis_client: "redis.Redis", log_format: str
) -> None:
    fleet = hostile_fleet(fleets, redis_client, log_format)
    for page in (
        "/status.json",
        "/dead.json",
        "/task.json?id=told",
        "/metrics",
        "/readyz",
        "/readyz?verbose",
        "/livez",
        "/%1B[2J",
    ):
        assert unfit_in(fleet.get(page)[1]) == "", page
    assert printable(VALID)[:20] in fleet.get("/status.json")[1]
    fleet.term()
    assert fleet.exit_code() == 0
    log = fleet.log_text()
    assert "argument before" in log
    assert "task.dead" in log
    assert unfit_in(log) == ""


def test_commands_escape_pushed_and_given_control_codes(fleets: Fleets, redis_client: "redis.Redis") -> None:
    fleet = hostile_fleet(fleets, redis_client)
    for command in COMMANDS:
        for more in ((), ("--json",)):
            done = fleet.rota(*command, *more)
            assert unfit_in(done.stdout + done.stderr) == "", (command, done.stdout, done.stderr)
            assert "Traceback" not in done.stderr
            if more and done.returncode == 0:
                json.loads(done.stdout)
    assert VALID in [queue["queue"] for queue in fleet.rota_json("queue", "ls")]
    assert json.loads(fleet.rota_json("dead", "show", "told")["body"])[3] == [VALID]


def test_hostile_import_error_is_logged_escaped(fleets: Fleets) -> None:
    fleet = fleets.make()
    (fleet.folder / "tasks.py").write_text(TASKS + "\nraise Failed(HOSTILE)\n")
    fleet.launch()
    assert fleet.exit_code() == 78
    assert "zygote.failed" in fleet.log_text()
    assert unfit_in(fleet.log_text()) == ""
    assert unfit_in(fleet.rota("check").stderr) == ""
