"""The entry point of `rota`, and of `python -m rota_supervisor`.

Before its heavy imports, `rota run` blocks the signals that the master handles. The kernel keeps blocked signals until
the master's loop reads them. Without this, a TERM that arrives during the imports would be lost if this process is
process 1 of a container, because the kernel discards signals for which process 1 has no handler. Otherwise, the TERM
would kill this process before its start is complete.
"""

import io
import os
import resource
import signal
import sys
from collections.abc import Sequence

# TTIN and TTOU add and remove a worker, TSTP and CONT quiet and resume the fleet, USR1 requests a report, USR2 restarts
# the workers, and CHLD reports the death of a child.
_NAMES = "TERM INT HUP QUIT TTIN TTOU TSTP CONT USR1 USR2 CHLD"
MASTER_SIGNALS = frozenset(signal.Signals[f"SIG{name}"] for name in _NAMES.split())
LEAST_STACK_BYTES = 1 << 20
_OPTIONS_WITH_A_VALUE = ("-c", "--config")


def command_of(arguments: Sequence[str]) -> str:
    """Return the command in these arguments, which is the first word that is neither an option nor an option's
    value.
    """
    words = iter(arguments)
    for word in words:
        if word in _OPTIONS_WITH_A_VALUE:
            next(words, None)
        elif not word.startswith("-"):
            return word
    return ""


def open_closed_descriptors() -> None:
    """Open the standard descriptors that the parent has closed. Otherwise, the first files that this process opens
    would get these descriptor numbers, and log lines would be written into those files.
    """
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None and os.open(os.devnull, os.O_RDWR) == fd:
            os.set_inheritable(fd, True)
            setattr(sys, name, os.fdopen(fd, "r" if fd == 0 else "w", encoding="utf-8"))


def escape_unencodable_output() -> None:
    """Make the standard output and standard error escape characters that their encoding cannot represent. By default,
    such a character ends the command with an error.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def environment_fault() -> str:
    """Return the reason why no command can run in this environment, or "" if commands can run. It must have more than
    64 kB of stack, which the imports need, and /proc, from which the fleet reads data about its processes.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_STACK)
    if soft != resource.RLIM_INFINITY and soft < LEAST_STACK_BYTES:
        return f"the stack is limited to {soft >> 10} kB: allow at least {LEAST_STACK_BYTES >> 10} kB (ulimit -s)"
    return "" if os.path.exists("/proc/self/stat") else "/proc is not mounted: run mount -t proc proc /proc"  # noqa: PTH110 - without pathlib


def main() -> None:
    """Run the command line of this process, and exit with its exit code."""
    open_closed_descriptors()
    escape_unencodable_output()
    if fault := environment_fault():
        sys.stderr.write(f"rota: error: {fault}\n")
        sys.exit(78)  # ExitCode.CONFIG, whose import would need more stack
    if command_of(sys.argv[1:]) == "run":
        signal.pthread_sigmask(signal.SIG_BLOCK, MASTER_SIGNALS)
    from rota_supervisor.exits import ExitCode, print_crash  # noqa: PLC0415 - after the signals are blocked

    sys.excepthook = print_crash
    try:
        from rota_supervisor.cli.app import run_app  # noqa: PLC0415 - after the signals are blocked

        code = run_app(sys.argv[1:])
    except ModuleNotFoundError as error:
        # Other processes import the application's code, so the missing module must be a dependency of Rota itself.
        missing = (error.name or "").partition(".")[0]
        sys.stderr.write(f"rota: error: this command needs {missing}, which is not installed: pip install rota\n")
        code = ExitCode.CONFIG
    sys.exit(code)


if __name__ == "__main__":
    main()
