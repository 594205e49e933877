"""Collects the parts of the support archive that `rota doctor --bundle` writes, and the secrets that are removed from
these parts.
"""

import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from rota.protocol.keys import PROTOCOL_VERSION
from rota.server.address import parse_address
from rota_supervisor.cli.examination import ExaminationResult
from rota_supervisor.cli.node_verbs import node_of, status_of
from rota_supervisor.config.loader import as_values, origins_by_path
from rota_supervisor.config.model import Config
from rota_supervisor.doctor.bundle import Bundle
from rota_supervisor.doctor.scrubber import (
    Scrubber,
    secrets_in_arguments,
    secrets_in_environment,
    secrets_in_url,
)
from rota_supervisor.exits import Failure
from rota_supervisor.node_http import NodeHttp, NodeUnreachable
from rota_supervisor.server_check import version_of

LOG_BYTES: Final = 1 << 20
LOG_LINES: Final = 5000  # the number of lines copied from the systemd journal
_JOURNAL_SECONDS: Final = 20.0
_MASKED: Final = "***"
_STDERR: Final = 2
_METRICS: Final = "/metrics"
_MAIN: Final = "rota"
_FOR_DEVELOPMENT: Final = re.compile(r"extra == .dev.")
_NAME: Final = re.compile(r"^[A-Za-z0-9._-]+")


def collect(result: ExaminationResult, report: Mapping[str, Any], log: Path | None) -> Bundle:
    """Return the archive with all parts that can be collected."""
    found = result.found
    config = result.found.config
    bundle = Bundle(Scrubber(_secrets_of(result)))
    bundle.add("findings.json", {name: report[name] for name in ("code", "findings", "unread")})
    bundle.add("facts.json", report["facts"])
    bundle.add("versions.json", _versions(result))
    bundle.add("config.json", _configuration(result))
    _add(bundle, "status.json", found.fleet.status, found.fleet.why_no_status)
    _add_pages(bundle, config)
    _add(bundle, "nodes.json", _nodes(result), "no heartbeats could be read")
    _add(bundle, "audit.json", result.server.counts, "the counts of tasks could not be read")
    _add_log(bundle, result, log)
    return bundle


def _add(bundle: Bundle, name: str, values: Any, why_not: str) -> None:
    if values is None:
        bundle.miss(name, why_not)
    else:
        bundle.add(name, values)


# Secrets


def _secrets_of(result: ExaminationResult) -> set[str]:
    """Return all secrets that this command can find: in the configuration, in the files that the configuration names,
    and in the environments of this process and the master.
    """
    config = result.found.config
    process = result.found.process
    environments = [dict(os.environ)]
    if process.is_master:
        environments.append(_environment_of(process.pid))
    secrets = {result.server.password, *_secrets_of_url(config), *_secret_files(config)}
    for environment in environments:
        secrets.update(secrets_in_environment(environment))
    for schedule in config.schedules.values():
        secrets.update(secrets_in_arguments([schedule.args, schedule.kwargs]))
    return {secret.strip() for secret in secrets}


def _secrets_of_url(config: Config) -> Iterator[str]:
    yield from secrets_in_url(config.redis_url)
    try:
        address = parse_address(config.redis_url)
    except ValueError:
        return
    yield address.password
    if address.sentinels is not None:
        yield address.sentinels.password


def _secret_files(config: Config) -> Iterator[str]:
    """Yield the words in the secret files that the configuration names, and the passwords in any URLs there."""
    for name in (config.http.token_file, config.http.read_token_file, config.redis_url_file):
        try:
            text = Path(name).read_text(errors="replace") if name else ""
        except OSError:  # Without the value, a secret is removed only where a key names it.
            continue
        yield from text.split()
        yield from secrets_in_url(text)


def _environment_of(pid: int) -> dict[str, str]:
    """Return the environment with which a process was started, or {} if it cannot be read."""
    try:
        raw = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return {}
    pairs = (part.partition(b"=") for part in raw.split(b"\0"))
    return {os.fsdecode(name): os.fsdecode(value) for name, equals, value in pairs if equals}


# The parts


def _configuration(result: ExaminationResult) -> dict[str, Any]:
    """Return the configuration with the source of each value. Arguments of schedules are omitted, because they are data
    of the application.
    """
    values = as_values(result.found.config)
    for schedule in values["schedules"].values():
        schedule.update({name: _MASKED for name in ("args", "kwargs") if schedule.get(name)})
    loaded = result.loaded
    return {"config": values, "origins": None if loaded is None else origins_by_path(loaded)}


def _versions(result: ExaminationResult) -> dict[str, Any]:
    server = result.found.server
    return {
        "rota": importlib.metadata.version(_MAIN),
        "protocol": PROTOCOL_VERSION,
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "server": None if server is None or not server.info else str(version_of(server.info)),
        "packages": dict(sorted(_packages())),
    }


def _packages() -> Iterator[tuple[str, str]]:
    """Yield the name and version of each installed package that Rota uses, including those of its extras."""
    for requirement in importlib.metadata.requires(_MAIN) or ():
        named = _NAME.match(requirement)
        if named is None or _FOR_DEVELOPMENT.search(requirement):
            continue
        try:
            yield named[0], importlib.metadata.version(named[0])
        except importlib.metadata.PackageNotFoundError:  # The package belongs to an extra that is not installed.
            continue


def _nodes(result: ExaminationResult) -> list[dict[str, Any]] | None:
    if result.server.server is None:
        return None
    return [
        {
            "name": node.name,
            "lease_seconds": node.lease_seconds,
            "silent_seconds": node.silent_seconds,
            "tasks": None if node.tasks is None else sorted(node.tasks),
            **node.report._asdict(),
        }
        for node in result.server.nodes
    ]


def _add_pages(bundle: Bundle, config: Config) -> None:
    """Add the metrics and the status of the node, as its exporter serves them."""
    try:
        bundle.add("page.json", _page_of(config))
        bundle.add_text("metrics.txt", _fetched(node_of(config), _METRICS))
    except (Failure, NodeUnreachable) as error:
        for name in ("page.json", "metrics.txt"):
            if name not in bundle.texts:
                bundle.miss(name, str(error))


def _page_of(config: Config) -> dict[str, Any]:
    """Return the status of the node as its exporter serves it.

    Raises NodeUnreachable if no node of this namespace replies, and Failure if the address of the exporter is not
    known.
    """
    if not config.http.listen:
        raise NodeUnreachable("http.listen turns the exporter off")
    page = status_of(node_of(config))
    if page.get("fleet") != config.namespace:
        raise NodeUnreachable(f"another fleet listens at {config.http.listen}: {page.get('fleet')}")
    return page


def _fetched(node: NodeHttp, path: str) -> str:
    page = node.get(path)
    if page.status != HTTPStatus.OK:
        raise NodeUnreachable(f"{node.url}{path} returns {page.status}: {page.line}")
    return page.text


# The log


def _add_log(bundle: Bundle, result: ExaminationResult, log: Path | None) -> None:
    process = result.found.process
    unit = result.found.unit
    file = log or (_file_of_log(process.pid) if process.is_master else None)
    if file is None and unit is not None:
        _add_journal(bundle, unit.name)
        return
    if file is None:
        bundle.miss("log.txt", "no running master writes its log to a file: name a log file with --log")
        return
    try:
        bundle.add_log("log.txt", _end_of(file))
    except OSError as error:
        bundle.miss("log.txt", f"{file}: {error.strerror}")


def _file_of_log(pid: int) -> Path | None:
    """Return the file to which a process writes standard error, or None if standard error is not a file."""
    opened = Path(f"/proc/{pid}/fd/{_STDERR}")
    try:
        return opened if opened.is_file() else None
    except OSError:  # The process belongs to another user.
        return None


def _end_of(file: Path) -> str:
    """Return at most the last LOG_BYTES bytes of a file, from the beginning of a line."""
    with file.open("rb") as opened:
        size = opened.seek(0, os.SEEK_END)
        opened.seek(max(0, size - LOG_BYTES))
        raw = opened.read(LOG_BYTES)
    if size > LOG_BYTES:
        raw = raw.partition(b"\n")[2]
    return raw.decode(errors="replace")


def _add_journal(bundle: Bundle, unit: str) -> None:
    program = shutil.which("journalctl")
    if program is None:
        bundle.miss("log.txt", "this machine has no journalctl")
        return
    command = [program, "--no-pager", "--output=cat", f"--lines={LOG_LINES}", f"--unit={unit}"]
    try:
        done = subprocess.run(  # noqa: S603 - no shell
            command, capture_output=True, text=True, errors="replace", timeout=_JOURNAL_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        bundle.miss("log.txt", str(error))
        return
    if done.returncode == 0:
        bundle.add_log("log.txt", done.stdout)
    else:
        bundle.miss("log.txt", done.stderr.strip())
