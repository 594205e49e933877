"""`rota init`: the first two files of a fleet; `rota config print`: the configuration in force, secrets redacted."""

from pathlib import Path

import click

from rota_supervisor.cli import command, output
from rota_supervisor.config import loader
from rota_supervisor.exits import ExitCode, Failure

CONFIG_TEXT = """\
# The configuration of a Rota fleet. Every key: docs/configuration.md. Check it with `rota check`.

namespace = "rota"                        # everything of this fleet in Redis stands under it
redis_url = "redis://127.0.0.1:6379/0"    # Redis >= 7.0 or Valkey >= 7.2; a secret: redis_url_file
imports   = ["tasks"]                     # the modules that define the tasks
workers   = 4                             # edit, then `rota reload`: the pool grows or shrinks

# Queues by priority, highest first. A tier is served only when all above it have nothing ready;
# queues in one tier take turns.
tiers = [
  ["high"],
  ["default"],
]

# [queues.default]                        # optional
# weight = 3                              # share of the turns in its tier
# cap    = 10                             # running at once over the whole fleet
# rate   = "100/m"                        # starts: /s, /m or /h
# lag_objective_seconds = 5               # how late a task may start

# [schedules.nightly]                     # enqueued periodically: docs/schedules.md
# task     = "greet"
# cron     = "30 2 * * *"                 # or every = 60, in seconds
# timezone = "Europe/Zurich"
# args     = ["everybody"]

# [limits]
# time_limit_seconds = 3600               # a task that runs longer is killed
# drain_seconds = 25                      # how long a stop waits for what runs

# [http]
# listen = "127.0.0.1:9477"               # /metrics, /livez, /readyz and a status page
# token_file = "token"                    # wanted by the page where other machines are to see it
"""

TASKS_TEXT = '''\
"""The tasks of this fleet: ordinary functions, which workers run."""

import rota


@rota.task
def greet(name: str) -> str:
    """Call it: `greet("you")`. Have a worker call it: `greet.enqueue("you")`, or

    rota task enqueue greet you
    """
    print(f"Hello, {name}.", flush=True)
    return name


@rota.task(queue="high", retries=5, time_limit=30)
def send_password_reset(user_id: int) -> None:
    """A task of the highest tier: an attempt that raises is repeated up to 5 times, later each time."""
    print(f"Sending a password reset to user {user_id}.", flush=True)
'''

FILES = {"rota.toml": CONFIG_TEXT, "tasks.py": TASKS_TEXT}


@click.command(cls=command.RotaCommand)
def init() -> None:
    """Write a commented rota.toml and tasks.py into this folder. Files that are there stay as they are."""
    taken = [name for name in FILES if Path(name).exists()]
    if taken:
        raise Failure(ExitCode.TAKEN, *(f"{name} is there already: nothing was written" for name in taken))
    for name, text in FILES.items():
        try:
            with Path(name).open("x", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise Failure(ExitCode.TAKEN, f"{name} cannot be written: {error.strerror}") from None
        output.say(f"wrote {name}")
    output.say("next: `rota run --embedded`, and in another terminal `rota task enqueue greet you`")


@click.group(cls=command.RotaGroup)
def config() -> None:
    """Show the configuration in force."""


@config.command("print")
@click.option("--origin", is_flag=True, help="Say where each value came from.")
def print_config(origin: bool) -> None:
    """Print the configuration: defaults, file and environment together."""
    state = command.current_state()
    loaded = state.load_with_warnings()
    if state.json:
        values = loader.as_values(loaded.config)
        output.put_json({"config": values, "origins": loader.origins_by_path(loaded)} if origin else values)
    else:
        output.put(loader.as_toml(loaded, origins=origin).rstrip())
