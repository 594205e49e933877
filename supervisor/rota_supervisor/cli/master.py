"""This node's master, reached by its control socket: the verbs `rota scale`, `rota reload` and the others."""

import contextlib
import os
import re
import select
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click

from rota_supervisor.cli import command, output
from rota_supervisor.config.load import DEFAULT_FILE, sources_of
from rota_supervisor.config.model import Config
from rota_supervisor.control.places import is_of_others, socket_places
from rota_supervisor.control_line import exchange
from rota_supervisor.exits import ExitCode, Failure

ANSWER_SECONDS = 10.0
UNSEEN_LOOK_SECONDS = 0.1  # whether a master still answers whose process cannot be waited for
_UCRED = struct.Struct("3i")
STOP_MARGIN_SECONDS = 15.0  # beyond the drain: killing what is left, telling Redis, ending pollers and exporter
RELOAD_MARGIN_SECONDS = 15.0
_BOOTS: Final = 3  # of the code, and of its first workers, who get a second try
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,9}", re.ASCII)  # of many more digits Python makes no number


class ControlClient:
    """A conversation with a live master."""

    def __init__(self, connected: socket.socket, path: Path) -> None:
        self._socket = connected
        self._path = path
        self.master_pid, _ = _peer_of(connected)  # 0 when it is in a PID namespace that is not seen from this one

    def ask(self, verb: str, seconds: float = ANSWER_SECONDS, **fields: Any) -> dict[str, Any]:
        """Send a request and wait so long for its answer. Raises Failure: 69 without one, 1 for a refusal."""
        try:
            answer = exchange(self._socket, {"verb": verb, **fields}, seconds)
        except TimeoutError:
            reason = f"not within {seconds:g} s: see its log, and whether process {self.master_pid} is stopped"
            raise self._no_answer(reason) from None
        except OSError as error:
            raise self._no_answer(str(error)) from error
        if not answer.get("ok"):
            raise Failure(ExitCode.NO, f"the master refused: {answer.get('error', 'it did not say why')}")
        return answer

    def _no_answer(self, reason: str) -> Failure:
        return Failure(ExitCode.UNREACHABLE, f"the master at {self._path} did not answer: {reason}")

    def wait_for_exit(self, seconds: float) -> bool:
        """Wait until the master has ended; False when it has not in time."""
        if self.master_pid:
            return _has_exited(self.master_pid, seconds)
        deadline = time.monotonic() + seconds
        while (connected := _connect(self._path)) is not None:
            connected.close()
            if time.monotonic() > deadline:
                return False
            time.sleep(UNSEEN_LOOK_SECONDS)
        return True


@contextlib.contextmanager
def master_of(config: Config) -> Iterator[ControlClient]:
    """A conversation with the master of this configuration. Raises Failure 69 when there is none."""
    places = socket_places(config, os.environ, os.getuid())
    refused: list[Path] = []
    for path in places:
        try:
            connected = _connect(path)
        except PermissionError:
            refused.append(path)
            continue
        if connected is not None:
            with connected:
                yield ControlClient(connected, path)
            return
    if refused:
        why = f"{refused[0]} is another user's: ask as the user of the master, or as root"
    else:
        why = f"no master answers at {' or '.join(map(str, places))}: start one with `rota run`, or see [control]"
    raise Failure(ExitCode.UNREACHABLE, why)


def _connect(path: Path) -> socket.socket | None:
    """A connection, or None where nobody listens. Raises PermissionError."""
    if is_of_others(path.parent):  # whoever listens there is not our master
        return None
    connecting = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connecting.settimeout(ANSWER_SECONDS)
    try:
        connecting.connect(str(path))
    except OSError as error:
        connecting.close()
        if isinstance(error, PermissionError):
            raise
        return None
    if _peer_of(connecting)[1] not in (os.geteuid(), 0) and os.geteuid() != 0:  # it sits where our master would
        connecting.close()
        return None
    return connecting


def _peer_of(connected: socket.socket) -> tuple[int, int]:
    """The process that listens at the other end, and its user."""
    raw = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    pid, user, _ = _UCRED.unpack(raw)
    return pid, user


def _has_exited(pid: int, seconds: float) -> bool:
    """Whether a process that is not our child ends within this time."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([fd], [], [], seconds)[0])
    finally:
        os.close(fd)


# The verbs


@contextlib.contextmanager
def _reach() -> Iterator[tuple[Config, ControlClient]]:
    """The master, also while its file has faults; they are the answer only when no master is found by it."""
    state = command.current_state()
    config, faults = state.load_what_can_be()
    with contextlib.ExitStack() as stack:
        try:
            master = stack.enter_context(master_of(config))
        except Failure as failure:
            if faults:
                raise Failure(ExitCode.CONFIG, *faults) from None
            hint = f"there is no {DEFAULT_FILE} in this folder: say -c FILE if it is elsewhere"
            has_file = sources_of(state.config_file).file.exists()
            raise Failure(failure.code, *failure.messages, *([] if has_file else [hint])) from None
        yield config, master


def ask(verb: str, **fields: Any) -> dict[str, Any]:
    """Ask the master; answers what it said."""
    with _reach() as (_, master):
        answer: dict[str, Any] = master.ask(verb, **fields)[verb]
    return answer


@click.command(cls=command.RotaCommand, context_settings={"ignore_unknown_options": True})  # negative numbers
@click.argument("words", metavar="[POOL] N|+N|-N", nargs=-1)
def scale(words: tuple[str, ...]) -> None:
    """Give a pool another number of workers: 8 in all, +2 more, -2 fewer. It holds until the file says another one."""
    pool, number = _pool_and_number(words)
    key = "more" if number[0] in "+-" else "workers"
    answer = ask("scale", pool=pool, **{key: int(number)})
    said = f"pool {answer['pool']}: from {answer['from']} to {output.counted(answer['to'], 'worker')}"
    command.current_state().answer(answer, said)


def _pool_and_number(words: tuple[str, ...]) -> tuple[str | None, str]:
    """What was said of which pool. Raises click.UsageError."""
    for word in words:
        if word.startswith("-") and not _NUMBER.fullmatch(word):
            raise click.NoSuchOption(word)
    match words:
        case (number,) if _NUMBER.fullmatch(number):
            return None, number
        case (pool, number) if _NUMBER.fullmatch(number):
            return pool, number
        case ():
            raise click.UsageError("how many? Say `rota scale 8`, `rota scale +2` or `rota scale POOL 8`")
        case (word,) | (_, word):
            raise click.UsageError(f"how many? Expected a number as in 8, +2 or -2, got {word!r}")
    raise click.UsageError("expected one pool and one number")


@click.command(cls=command.RotaCommand)
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
def reload(dry_run: bool) -> None:
    """Have the master load its configuration again, as HUP does. Exit 78 when it refuses the new one."""
    if dry_run:
        _show_plan(ask("reload", dry_run=True))
    else:
        _replace("reload", "reloaded")


@click.command(cls=command.RotaCommand)
def restart() -> None:
    """Replace every worker by one with freshly imported code, one beside the others. Exit 78 when it does not load."""
    _replace("restart", "restarted")


def _replace(verb: str, done: str) -> None:
    state = command.current_state()
    with _reach() as (config, master):
        seconds = _BOOTS * config.limits.boot_seconds + RELOAD_MARGIN_SECONDS
        outcome = master.ask(verb, seconds=seconds)[verb]
    if state.json:
        output.put_json(outcome)
    if outcome["result"] != "success":
        raise Failure(ExitCode.CONFIG, *outcome["faults"], "the fleet keeps its old configuration and code")
    if not state.json:
        output.say(f"{done}: {'; '.join(outcome['changes']) or 'nothing changed'}")
        for line in outcome.get("differences", ()):  # a master from before an upgrade names none
            output.say(line)


def _show_plan(preview: dict[str, Any]) -> None:
    if command.current_state().json:
        output.put_json(preview)
    else:
        for line in preview["plan"]:
            output.put(line)
        for warning in preview["warnings"]:
            output.say_warning(warning)
    if preview["result"] != "success":
        raise Failure(ExitCode.CONFIG, *preview["faults"])


@click.command(cls=command.RotaCommand)
def quiet() -> None:
    """Have the workers claim nothing more; what runs is finished, and they stay."""
    answer = ask("quiet")
    said = "quiet: nothing more is claimed until `rota resume`" if answer["changed"] else "it is quiet already"
    command.current_state().answer(answer, said)


@click.command(cls=command.RotaCommand)
def resume() -> None:
    """Have the workers claim again."""
    answer = ask("resume")
    said = "resumed" if answer["changed"] else "it was not quiet: nothing changed"
    command.current_state().answer(answer, said)


@click.command(cls=command.RotaCommand)
@click.option("--now", is_flag=True, help="Do not wait for what runs: it is killed and goes back to its queue.")
def stop(now: bool) -> None:
    """Drain the fleet and stop it, and wait until it is gone."""
    with _reach() as (config, master):
        pid = master.master_pid
        answer = master.ask("stop", now=now)["stop"]
        if not master.wait_for_exit(config.limits.drain_seconds + STOP_MARGIN_SECONDS):
            raise Failure(ExitCode.NO, f"the master, pid {pid}, is asked to stop and still runs: see its log")
    command.current_state().answer({**answer, "pid": pid, "stopped": True}, "stopped")
