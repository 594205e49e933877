"""`rota export` and `rota import`, which write a namespace to a file of JSON lines and read it back."""

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import BinaryIO, Final

import click

from rota_supervisor.backup.export_file import export_namespace
from rota_supervisor.backup.file_check import CheckedFile, FileFault, check_file, records_after
from rota_supervisor.backup.import_file import Importer, ImportRefused, batches_of, blame_of_import
from rota_supervisor.backup.records import End
from rota_supervisor.cli import command, output
from rota_supervisor.exits import ExitCode, Failure
from rota_supervisor.server_check import parse_info, version_of

_STANDARD_OUTPUT: Final = Path("-")
_MODE: Final = 0o600  # readable only by its owner, because it contains the arguments of all tasks
_NAMED_LINES: Final = 20


@click.command(cls=command.RotaCommand)
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
@click.option("--exact", is_flag=True, help="Exit with 1 and keep no file if a fleet or a producer was active.")
def export(file: Path, *, exact: bool) -> None:
    """Write all tasks, schedules, groups, results and settings to a new file, or to standard output for -.

    Each line of the file is a JSON object, and the last line has the numbers of records and a checksum. The command
    only reads the namespace, and the fleet may run. A task that lives during the whole export is in the file exactly
    once.
    """
    state = command.current_state()
    if file != _STANDARD_OUTPUT and file.exists():
        raise Failure(ExitCode.TAKEN, f"{file} already exists: nothing was written")
    began = time.monotonic()
    with state.redis() as (config, _, connection):
        server = str(version_of(parse_info(connection.execute("INFO", "server").decode(errors="replace"))))
        with _new_file(file) as out, output.progress_bar("exporting") as report:
            end, left_out = export_namespace(connection, config.namespace, server, out, report)
            if exact and (end.running or not end.is_quiet):
                raise Failure(ExitCode.NO, _why_not_exact(end))
    for key in left_out:
        output.print_warning(f"the key {key!r} has a type that Rota does not use for it, so the key was left out")
    seconds = round(time.monotonic() - began, 3)
    summary = f"exported {output.counted(end.tasks, 'task')} in {seconds:.1f} s{_notes_on(end)}"
    if file == _STANDARD_OUTPUT:
        output.print_message(summary)
    else:
        state.report({"file": str(file), "seconds": seconds, "left_out": left_out, **asdict(end)}, summary)


@contextlib.contextmanager
def _new_file(path: Path) -> Iterator[BinaryIO]:
    """Yield the open file `PATH.part`, which is renamed to `path` when it is complete. A `PATH.part` that an earlier
    export has left is overwritten.
    """
    if path == _STANDARD_OUTPUT:
        yield sys.stdout.buffer
        return
    part = path.with_name(path.name + ".part")
    try:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _MODE)
    except OSError as error:
        raise Failure(ExitCode.TAKEN, f"{part} cannot be written: {error.strerror}") from None
    try:
        with os.fdopen(descriptor, "wb") as out:
            yield out
            out.flush()
            os.fsync(descriptor)
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _why_not_exact(end: End) -> str:
    if end.running:
        return f"{output.counted(end.running, 'task')} in flight: wait until all nodes and consumers have stopped"
    return "a fleet or a producer was active while the export ran: stop the fleet, and let producers use the new server"


def _notes_on(end: End) -> str:
    running = f"; {output.counted(end.running, 'task')} that were in flight will run again" if end.running else ""
    return running + ("" if end.is_quiet else "; tasks may have changed during the export: see docs/backup.md")


@click.command(cls=command.RotaCommand)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE", required=False)
@click.option(
    "--prepare", is_flag=True, help="Only close the empty namespace to fleets, so that producers may already enqueue."
)
def import_(file: Path | None, *, prepare: bool) -> None:
    """Write the tasks of an exported file into an empty namespace, and check them. No fleet can start in the namespace
    before the import has ended.

    The whole file is checked first. To continue an interrupted import, repeat the command.
    """
    if (file is None) != prepare:
        raise Failure(ExitCode.USAGE, "name the file to import, or use --prepare without a file")
    with command.failing({ImportRefused: ExitCode.NO}):
        if file is None:
            _prepare()
        else:
            _import(file)


def _prepare() -> None:
    state = command.current_state()
    with state.redis() as (config, _, connection):
        Importer(connection, config.namespace).begin("")
    text = f"the namespace {config.namespace!r} waits for an import: producers may enqueue, and no fleet can start"
    state.report({"prepared": config.namespace}, text)


def _import(file: Path) -> None:
    state = command.current_state()
    began = time.monotonic()
    checked = _check(file)
    end = checked.end
    with state.redis() as (config, _, connection):
        importer = Importer(connection, config.namespace)
        before = importer.begin(end.sha256)
        if before:
            output.print_message(f"continuing after line {before}")
        with file.open("rb") as lines, output.progress_bar("importing") as report:
            batches = batches_of(records_after(lines, before), before)
            left_out = importer.write(end.sha256, batches, lambda done: report(done, end.lines))
        limits = config.restarts
        returned = importer.finish(end, blame_of_import(limits.crash_limit, limits.loss_limit))
    _warn_of(left_out)
    seconds = round(time.monotonic() - began, 3)
    counts = {"tasks": end.tasks - len(left_out), "items": end.items, "keys": end.keys, "returned": returned}
    facts = {
        "namespace": config.namespace,
        **counts,
        "left_out": left_out,
        "continued_after": before,
        "seconds": seconds,
    }
    again = f"; {output.counted(returned, 'task')} that were in flight are back in their queues" if returned else ""
    state.report(facts, f"imported {output.counted(counts['tasks'], 'task')} in {seconds:.1f} s{again}")


def _check(file: Path) -> CheckedFile:
    """Check a whole file. If any lines are not valid, raises Failure with code 1, which lists their line numbers."""
    size = file.stat().st_size
    try:
        with file.open("rb") as lines, output.progress_bar("checking") as report:
            return check_file(lines, lambda done: report(done, size))
    except FileFault as fault:
        raise Failure(ExitCode.NO, *(f"{file}: {each}" for each in fault.faults), "nothing was imported") from None


def _warn_of(left_out: list[int]) -> None:
    if left_out:
        named = ", ".join(map(str, left_out[:_NAMED_LINES])) + (", ..." if len(left_out) > _NAMED_LINES else "")
        output.print_warning(
            f"{output.counted(len(left_out), 'task')} left out, because producers have enqueued tasks with the same "
            f"ids: lines {named}"
        )
