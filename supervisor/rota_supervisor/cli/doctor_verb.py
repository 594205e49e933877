"""`rota doctor` finds problems with the configuration, the machine, the server and the fleet, and reports what they
mean and what to do. With `--bundle`, it also writes a support archive.
"""

import dataclasses
import math
import textwrap
from pathlib import Path
from typing import Any, Final

import click

from rota_supervisor.cli import command, output
from rota_supervisor.cli.examination import ExaminationOptions, ExaminationResult, examine
from rota_supervisor.cli.support_archive import collect
from rota_supervisor.doctor.finding_kinds import Severity
from rota_supervisor.doctor.findings import Finding, exit_code_of
from rota_supervisor.doctor.readings import Examination
from rota_supervisor.exits import ExitCode, Failure

_COLUMNS: Final = 100
_INDENT: Final = 10
_INFINITE: Final = "infinity"  # infinite numbers are written as this text, because JSON has none


@click.command(cls=command.RotaCommand)
@click.option("--no-imports", is_flag=True, help="Do not import the modules that define the tasks.")
@click.option("--strict", is_flag=True, help="Exit with 1 also if there are only warnings.")
@click.option(
    "--unit", default="", metavar="NAME", help="The systemd unit of the fleet [the unit of the running master]."
)
@click.option(
    "--grace",
    type=command.DURATION,
    metavar="DURATION",
    help="How long the service manager waits for a stop, for example terminationGracePeriodSeconds [as set in the "
    "unit].",
)
@click.option(
    "--bundle",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write a support archive without secrets to this new file, in .tar.gz format.",
)
@click.option(
    "--log",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The log file whose end is added to the archive [the log of the running master].",
)
def doctor(
    *, no_imports: bool, strict: bool, unit: str, grace: float | None, bundle: Path | None, log: Path | None
) -> int:
    """Examine the configuration, the machine, the server and the fleet.

    Each finding states what it means and what to do. Exit with 78 if the configuration, the code or the server cannot
    be used, with 69 if Redis is not reachable, and with 1 after any other error.
    """
    command.check_usage(
        "--log adds a log to the archive that --bundle writes: also use --bundle" if log and not bundle else None
    )
    state = command.current_state()
    if bundle is not None and bundle.exists():
        raise Failure(ExitCode.TAKEN, f"{bundle} already exists: nothing was written")
    result = examine(state, ExaminationOptions(no_imports, unit, grace))
    code = exit_code_of(result.findings, strict=strict)
    report = _report(result, code)
    if bundle is not None:
        collect(result, report, log).write(bundle)
    if state.json:
        output.put_json(report)
    else:
        _put(result)
    if bundle is not None:
        output.print_message(f"wrote {bundle}: read the archive before you send it")
    return code


def _report(result: ExaminationResult, code: ExitCode) -> dict[str, Any]:
    return {
        "code": int(code),
        "findings": [finding.to_json() for finding in result.findings],
        "unread": [each._asdict() for each in result.found.unread],
        "facts": _facts(result.found),
    }


def _facts(found: Examination) -> dict[str, Any]:
    """Return the facts for the JSON output. Facts that other commands show, such as the status of the fleet, are
    omitted.
    """
    parts: dict[str, Any] = {
        "process": found.process,
        "machine": found.machine,
        "server": found.server,
        "unit": found.unit,
    }
    facts = {name: None if part is None else dataclasses.asdict(part) for name, part in parts.items()}
    if facts["unit"] and facts["unit"]["stop_seconds"] == math.inf:
        facts["unit"]["stop_seconds"] = _INFINITE
    return {"workers": found.workers, "grace_seconds": found.grace_seconds, **facts}


def _put(result: ExaminationResult) -> None:
    for finding in result.findings:
        _put_finding(finding)
    unread = result.found.unread
    for each in unread:
        _put_paragraph("not read:", f"{each.what}: {each.why}")
    if unread:
        output.put("")
    output.put(_summary(result.findings))


def _put_finding(finding: Finding) -> None:
    kind = finding.kind
    _put_paragraph(f"{kind.severity.value}:", f"{finding.id}: {finding.seen}")
    _put_paragraph("", kind.means)
    _put_paragraph("", f"To do: {kind.remedy}")
    output.put("")


def _put_paragraph(label: str, text: str) -> None:
    width = _COLUMNS - _INDENT
    for line in textwrap.wrap(text, width, break_on_hyphens=False, break_long_words=False) or [""]:
        output.put(f"{label:<{_INDENT}}{line}")
        label = ""


def _summary(findings: list[Finding]) -> str:
    counts = [(severity, sum(each.kind.severity is severity for each in findings)) for severity in Severity]
    return ", ".join(output.counted(count, severity.value) for severity, count in counts if count) or "no findings"
