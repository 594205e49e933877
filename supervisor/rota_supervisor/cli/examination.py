"""The examination of `rota doctor`: the checks of `rota check`, then the facts about this node, the server and the
fleet, and the resulting findings."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from rota_supervisor.cli import command, config_verbs
from rota_supervisor.cli.control_client import master_of
from rota_supervisor.config.loader import Loaded
from rota_supervisor.config.model import Config
from rota_supervisor.config.resolution import calls_of, pool_sizes, served_queues
from rota_supervisor.doctor.diagnosis import diagnose
from rota_supervisor.doctor.findings import Finding, in_order
from rota_supervisor.doctor.machine_reader import read_machine, read_process
from rota_supervisor.doctor.readings import Examination, FleetReading, UnitReading, Unread
from rota_supervisor.doctor.server_reader import NO_SERVER, FoundServer, examine_server
from rota_supervisor.doctor.unit_reader import read_unit, unit_in
from rota_supervisor.exits import ExitCode, Failure

_GRACE: Final = Unread(
    "how long the service manager waits for a stop", "this is not visible in a container: state it with --grace"
)
_NOT_IMPORTED: Final = Unread("the modules that define the tasks", "--no-imports was given")
_NOT_NAMED: Final = Unread("the server", "the configuration has errors, so it may name the wrong server")


class ExaminationOptions(NamedTuple):
    """The options of an examination."""

    no_imports: bool = False
    unit: str = ""  # the name of the systemd unit, or "" for the unit of the running master
    grace_seconds: float | None = None


class ExaminationResult(NamedTuple):
    """The result of an examination."""

    found: Examination
    findings: list[Finding]  # the findings, the worst first
    loaded: Loaded | None  # None if the configuration has errors
    server: FoundServer


class MasterHere(NamedTuple):
    """The master on this node, if a master replies."""

    pid: int  # the pid of the master, or 0 if it is not visible here
    status: dict[str, Any] | None
    why_not: str


def examine(state: command.CliState, options: ExaminationOptions) -> ExaminationResult:
    """Examine the node, the server and the fleet. Return the findings and all facts that can be read."""
    unread: list[Unread] = []
    usable = state.load_usable()
    config = usable.config
    loaded = None if usable.faults else state.load()
    findings = [Finding("configuration-invalid", fault) for fault in usable.faults]
    tasks = None
    if loaded is not None:
        tasks, checked = _check(loaded, options, unread)
        findings += checked
    server = NO_SERVER
    if loaded is not None or usable.master is not None:
        server = examine_server(config, unread)
    else:
        unread.append(_NOT_NAMED)
    found = _facts(config, options, tasks, server, unread)
    findings += [*_of_failure(server.failure), *diagnose(found)]
    return ExaminationResult(found, in_order(findings), loaded, server)


def _most_workers(config: Config, desired: Mapping[str, int]) -> Iterator[int]:
    """Yield the largest number of workers that each pool can have: the upper end of its range, or its fixed number.
    `desired`: the current target of the running master for each pool, which an operator may have changed.
    """
    sizes = pool_sizes(config)
    for pool in desired or sizes:
        size = sizes.get(pool)
        is_scaled = size is not None and not size.is_fixed
        yield size.most if size is not None and (is_scaled or pool not in desired) else desired[pool]


def _facts(
    config: Config, options: ExaminationOptions, tasks: frozenset[str] | None, server: FoundServer, unread: list[Unread]
) -> Examination:
    master = _find_master(config)
    desired = {row["name"]: row["desired"] for row in (master.status or {}).get("pools", ())}
    missing = None if server.counts is None else server.counts["missing"]
    found = Examination(
        config,
        workers=sum(_most_workers(config, desired)),
        are_workers_set=bool(config.pools) or config.workers is not None,
        process=read_process(master.pid or os.getpid(), is_master=master.pid != 0, unread=unread),
        machine=read_machine(os.environ, unread),
        server=server.server,
        unit=_find_unit(options.unit, master.pid, unread),
        grace_seconds=options.grace_seconds,
        fleet=FleetReading(master.status, master.why_not, server.nodes, tasks, missing),
    )
    if found.machine.container and found.unit is None and found.grace_seconds is None:
        unread.append(_GRACE)
    return replace(found, unread=tuple(unread))


# The checks of `rota check`


def _check(
    loaded: Loaded, options: ExaminationOptions, unread: list[Unread]
) -> tuple[frozenset[str] | None, list[Finding]]:
    """Make the checks of `rota check`, except those of the server. Return the names of the tasks that the modules
    declare, or None if the modules were not imported, and the findings.
    """
    config = loaded.config
    warnings = list(loaded.warnings)
    findings: list[Finding] = []
    tasks = None
    if options.no_imports:
        unread.append(_NOT_IMPORTED)
    else:
        try:
            tasks = _check_code(loaded, warnings)
        except Failure as failure:
            findings += _all("code-unusable", failure.messages)
    try:
        config_verbs.check_certificate(config)
    except Failure as failure:
        findings += _all("http-certificate", failure.messages)
    warnings += config_verbs.warnings_of_series(config, len(served_queues(config)))
    return tasks, [*findings, *_all("configuration-warning", warnings)]


def _check_code(loaded: Loaded, warnings: list[str]) -> frozenset[str]:
    """Import the modules, compare them with the configuration, and return the names of their tasks. Raises Failure if
    the modules cannot be used.
    """
    config = loaded.config
    config_verbs.require_something_to_run(loaded)
    command.warn_without_imports(config, warnings.append)
    imports = config_verbs.probe_imports(config.imports, config.limits.boot_seconds, calls_of(config))
    warnings += imports.misfits
    config_verbs.check_against_code(config, imports.tasks, warnings.append)
    return frozenset(imports.tasks)


def _of_failure(failure: Failure | None) -> list[Finding]:
    """Return a finding if the connection to the server failed or was lost, and otherwise an empty list."""
    if failure is None:
        return []
    return _all("redis-access" if failure.code == ExitCode.CONFIG else "redis-unreachable", failure.messages)


def _all(kind: str, texts: Sequence[str]) -> list[Finding]:
    return [Finding(kind, text) for text in texts]


# The master and its unit


def _find_master(config: Config) -> MasterHere:
    try:
        with master_of(config) as master:
            return MasterHere(master.master_pid, master.request("status")["status"], "")
    except Failure as failure:
        return MasterHere(0, None, "; ".join(failure.messages))


def _find_unit(name: str, pid: int, unread: list[Unread]) -> UnitReading | None:
    """Return the settings of the systemd unit `name`, or of the unit to which the process belongs if `name` is ""."""
    own = unit_in(_groups_of(pid)) if pid else None
    if name:
        full = name if "." in name else f"{name}.service"
        return read_unit(full, is_of_user=own is not None and own[1], unread=unread)
    return own and read_unit(own[0], is_of_user=own[1], unread=unread)


def _groups_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cgroup").read_text()
    except OSError:  # The process has ended.
        return ""
