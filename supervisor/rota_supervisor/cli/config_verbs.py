"""Three commands: `rota init` writes the first two files of a fleet, `rota config print` shows the configuration in
force, and `rota check` reports every problem that would keep a fleet from running."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import click

from rota.protocol.keys import is_pattern
from rota_supervisor.cli import command, output
from rota_supervisor.code_probe import ProbeFailed, TookTooLong, query_code
from rota_supervisor.config import loader
from rota_supervisor.config.loader import DEFAULT_FILE, Loaded
from rota_supervisor.config.model import Config
from rota_supervisor.config.resolution import calls_of, pool_sizes, served_queues
from rota_supervisor.config.rules import compared_with_code
from rota_supervisor.exits import ExitCode, Failure
from rota_supervisor.exporter.series import enough_for, queues_with_room
from rota_supervisor.messages import ImportFailed, ScheduledCalls
from rota_supervisor.server_check import check_server

CONFIG_TEXT = """\
# The configuration of a Rota fleet. Every key: docs/configuration.md. Check it with `rota check`.

namespace = "rota"                        # the prefix of all keys of this fleet in Redis
redis_url = "redis://127.0.0.1:6379/0"    # Redis >= 7.0 or Valkey >= 7.2; with a password: redis_url_file
imports   = ["tasks"]                     # the modules that define the tasks
workers   = 4                             # edit it and run `rota reload` to resize the pool

# Queues by priority, highest first. A tier is served only when all above it have nothing ready;
# queues in one tier take turns.
tiers = [
  ["high"],
  ["default"],
]

# [queues.default]                        # optional
# weight = 3                              # share of the turns in its tier
# cap    = 10                             # running tasks in the whole fleet
# rate   = "100/m"                        # starts: /s, /m or /h
# lag_objective_seconds = 5               # how late a task may start

# [schedules.nightly]                     # enqueued periodically: docs/schedules.md
# task     = "greet"
# cron     = "30 2 * * *"                 # or every = 60, in seconds
# timezone = "Europe/Zurich"
# args     = ["everybody"]

# [limits]
# time_limit_seconds = 3600               # a task that runs longer is killed
# drain_seconds = 25                      # how long a stop waits for running tasks

# [http]
# listen = "127.0.0.1:9477"               # /metrics, /livez, /readyz and a status page
# token_file = "token"                    # required if other machines should see the status page
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
    """A task of the highest tier: a failed attempt is repeated up to 5 times, after longer and longer waits."""
    print(f"Sending a password reset to user {user_id}.", flush=True)
'''

FILES = {"rota.toml": CONFIG_TEXT, "tasks.py": TASKS_TEXT}


@click.command(cls=command.RotaCommand)
@click.option("--no-imports", is_flag=True, help="Do not import the modules that define the tasks.")
def check(*, no_imports: bool) -> None:
    """Check the configuration, the server and the imports.

    Exit with 78 if the configuration or the code cannot be used, and with 69 if Redis is not reachable.
    """
    state = command.current_state()
    loaded = state.load_with_warnings()
    config = loaded.config
    found = Imports({}, [], [])
    if not no_imports:
        require_something_to_run(loaded)
        command.warn_without_imports(config)
        found = probe_imports(config.imports, config.limits.boot_seconds, calls_of(config))
        check_against_code(config, found.tasks)
        for misfit in found.misfits:
            output.print_warning(misfit)
    check_certificate(config)
    queues = served_queues(config)
    schedules = sorted({*found.schedules, *config.schedules})
    for warning in warnings_of_series(config, len(queues)):
        output.print_warning(warning)
    patterns = sum(map(is_pattern, queues))
    ours = ("queue", len(queues) - patterns), ("pattern", patterns)
    seen = *ours, ("task", len(found.tasks)), ("schedule", len(schedules))
    counts = ", ".join(output.counted(number, what) for what, number in seen if number or what in ("queue", "task"))
    server = _checked_server(config, counts)
    facts = {"server": server, "queues": queues, "tasks": found.tasks, "schedules": schedules}
    state.report(facts, f"ready to run: {counts}, {server}")


def require_something_to_run(loaded: Loaded) -> None:
    """Raise Failure with code 78 if there is neither a configuration file nor a module to import, because the command
    was then probably run in the wrong folder.
    """
    if loaded.content is None and not loaded.config.imports:
        raise Failure(
            ExitCode.CONFIG,
            f"there is no {DEFAULT_FILE} in this folder, and imports names no module, so no task can run: write a file "
            "with `rota init`, or name one elsewhere with -c FILE",
        )


def check_certificate(config: Config) -> None:
    """Check that the exporter can load its TLS certificate, if one is configured. Raises Failure if the certificate
    cannot be loaded.
    """
    if not config.http.tls_cert:
        return
    import ssl  # noqa: PLC0415 - TLS is rarely used

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(config.http.tls_cert, config.http.tls_key)
    except OSError as error:
        files = f"http.tls_cert, http.tls_key: {config.http.tls_cert} and {config.http.tls_key}"
        what = "expected a certificate and its key in PEM format" if isinstance(error, ssl.SSLError) else error.strerror
        raise Failure(ExitCode.CONFIG, f"{files}: {what}") from error


def _checked_server(config: Config, counts: str) -> str:
    """Return the server's version, and print warnings about the server. Raises Failure if the server cannot be used. If
    it is not reachable, a message on standard error first states that everything else can be used. `counts`: the
    numbers of queues, tasks and so on for this message.
    """
    try:
        checked = check_server(config, open_namespace=False)
    except Failure as failure:
        if failure.code == ExitCode.UNREACHABLE:
            output.print_message(f"everything else can be used: {counts}")
        raise
    for warning in checked.warnings:
        output.print_warning(warning)
    return str(checked.version)


def warnings_of_series(config: Config, queues: int) -> list[str]:
    """Return a warning if the limit on series is too low for `/metrics` to show all queues under their own names."""
    bound = config.metrics.max_series
    workers = sum(size.most for size in pool_sizes(config).values())
    room = queues_with_room(bound, workers)
    if room >= queues:
        return []
    said = f"metrics.max_series = {bound}: there is room for the series of about {room} of {queues} queues, if each "
    others = "runs one task. The others, those of the lowest tiers, are shown as one, _other, in metrics and alerts; "
    return [f"{said}{others}{enough_for(queues, workers)} is enough"]


def check_against_code(
    config: Config, tasks: dict[str, str], warn: Callable[[str], None] = output.print_warning
) -> None:
    """Warn of tasks and queues that occur only in the configuration or only in the code. Raises Failure if such a
    difference keeps a fleet from running."""
    if config.imports and not tasks:
        modules = ", ".join(config.imports)
        warn(f"no module of imports ({modules}) declares a task, so no task can run: declare functions with @rota.task")
    faults, known = compared_with_code(config, tasks)
    for fault in known:
        warn(str(fault))
    if faults:
        raise Failure(ExitCode.CONFIG, *map(str, faults))


# The imports, in a child process


class Imports(NamedTuple):
    """The definitions in the task modules."""

    tasks: dict[str, str]  # the queue of each task
    schedules: list[str]  # the names of the schedules
    misfits: list[str]  # one message for each schedule whose arguments do not fit its task


def probe_imports(imports: Sequence[str], seconds: float, calls: ScheduledCalls) -> Imports:
    """Import modules in a child process, and return their definitions. Raises Failure with code 78 if the import fails
    or takes longer than `seconds`.
    """
    if not imports:
        return Imports({}, [], [])
    modules = ", ".join(imports)
    try:
        found = query_code(str(Path.cwd()), imports, {"calls": calls}, seconds)
    except TookTooLong as late:
        raise Failure(
            ExitCode.CONFIG,
            f"importing {modules} {late} (limits.boot_seconds): does a module wait for another service while it is "
            "imported?",
        ) from None
    except ProbeFailed as ended:
        raise Failure(ExitCode.CONFIG, f"importing {modules} {ended}") from None
    if "error" in found:
        raise Failure(ExitCode.CONFIG, ImportFailed(**found).message())
    return Imports(dict(found["tasks"]), found["schedules"], found["misfits"])


@click.command(cls=command.RotaCommand)
def init() -> None:
    """Write a commented rota.toml and tasks.py into this folder. If either file exists, write nothing."""
    taken = [name for name in FILES if Path(name).exists()]
    if taken:
        raise Failure(ExitCode.TAKEN, *(f"{name} already exists: nothing was written" for name in taken))
    for name, text in FILES.items():
        try:
            with Path(name).open("x", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise Failure(ExitCode.TAKEN, f"{name} cannot be written: {error.strerror}") from None
        output.print_message(f"wrote {name}")
    output.print_message("next: `rota run --embedded`, and in another terminal `rota task enqueue greet you`")


@click.group(cls=command.RotaGroup)
def config() -> None:
    """Show the configuration in force."""


@config.command("print")
@click.option("--origin", is_flag=True, help="Show the source of each value, for example a file or a variable.")
def print_config(*, origin: bool) -> None:
    """Print the configuration, merged from the defaults, the file and the environment."""
    state = command.current_state()
    loaded = state.load_with_warnings()
    if state.json:
        values = loader.as_values(loaded.config)
        output.put_json({"config": values, "origins": loader.origins_by_path(loaded)} if origin else values)
    else:
        output.put(loader.as_toml(loaded, origins=origin).rstrip())
